-- The state of a run that left memory, as JSON: a copy that spares reading the outputs it was made of. Runs with few outputs
-- have no row.
CREATE TABLE run_states (
  workflow_execution_id uuid NOT NULL PRIMARY KEY,
  state_json            text NOT NULL
);
