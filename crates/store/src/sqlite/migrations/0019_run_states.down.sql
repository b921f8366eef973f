DROP TABLE run_states;
