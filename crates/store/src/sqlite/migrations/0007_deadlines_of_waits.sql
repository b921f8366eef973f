-- From when on a wait takes no answer; NULL while its node has not opened, or if it has no limit. A callback that comes
-- later is refused, also while the run has not noticed that its wait is over.
ALTER TABLE run_waits ADD COLUMN deadline INTEGER;
