DROP TABLE run_fields;
DROP TABLE workflow_tags;
