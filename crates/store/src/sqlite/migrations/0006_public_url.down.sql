-- Where their callbacks come is known again with their next heartbeat.
ALTER TABLE runners DROP COLUMN public_url;
