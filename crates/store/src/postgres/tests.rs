//! What only PostgreSQL can show, and needs to look inside: query plans, migrations.

mod plans;
mod sql_functions;
