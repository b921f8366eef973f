//! Statements that are sent together and answered in their order: one round trip for all of them.

use tokio_postgres::{Client, Row, Statement, types::ToSql};

/// A prepared statement with its parameters.
pub(super) struct Query<'a> {
    statement: &'a Statement,
    params: Vec<Box<dyn ToSql + Sync + Send + 'a>>,
}

impl<'a> Query<'a> {
    pub(super) fn new(statement: &'a Statement) -> Query<'a> {
        Query {
            statement,
            params: Vec::new(),
        }
    }

    /// Adds an array of what `column` gives for each of the items.
    pub(super) fn column<I, T: ToSql + Sync + Send + 'a>(mut self, items: &[I], column: impl Fn(&I) -> T) -> Query<'a> {
        let column: Vec<T> = items.iter().map(column).collect();
        self.params.push(Box::new(column));
        self
    }

    /// Adds a parameter as it is.
    pub(super) fn bind<T: ToSql + Sync + Send + 'a>(mut self, value: T) -> Query<'a> {
        self.params.push(Box::new(value));
        self
    }

    async fn run(&self, client: &Client) -> Result<Vec<Row>, tokio_postgres::Error> {
        let params: Vec<&(dyn ToSql + Sync)> = self.params.iter().map(|param| &**param as _).collect();
        client.query(self.statement, &params).await
    }
}

/// Sends `first`, the queries and `last`. The first error is what went wrong: after it the server refuses the rest.
pub(super) async fn send(
    client: &Client,
    first: Option<&str>,
    queries: &[Query<'_>],
    last: Option<&str>,
) -> Result<Vec<Vec<Row>>, tokio_postgres::Error> {
    let plain = async |sql: Option<&str>| match sql {
        Some(sql) => client.batch_execute(sql).await,
        None => Ok(()),
    };
    // Everything is sent when it is first polled, and both of these poll in order (`join_all` up to 30).
    debug_assert!(queries.len() <= 30);
    let (begun, rows, ended) = futures::join!(
        plain(first),
        futures::future::join_all(queries.iter().map(|query| query.run(client))),
        plain(last)
    );
    begun?;
    let rows = rows.into_iter().collect::<Result<_, _>>()?;
    ended?;
    Ok(rows)
}
