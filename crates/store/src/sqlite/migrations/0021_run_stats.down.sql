DROP TABLE run_stats;
