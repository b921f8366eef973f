DROP TABLE workflow_plans;
