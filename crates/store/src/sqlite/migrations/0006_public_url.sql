-- Where callbacks come, as each process tells services.
ALTER TABLE runners ADD COLUMN public_url TEXT NOT NULL DEFAULT '';
