//! Sends several statements together; the server answers them in order. One round trip for all of them.

use futures::{
    future::{MaybeDone, join_all, maybe_done},
    join, poll,
};
use std::pin::{Pin, pin};
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

    /// Adds an array parameter with the result of `column` for each item.
    pub(super) fn column<I, T: ToSql + Sync + Send + 'a>(mut self, items: &[I], column: impl Fn(&I) -> T) -> Query<'a> {
        let column: Vec<T> = items.iter().map(column).collect();
        self.params.push(Box::new(column));
        self
    }

    /// Adds a parameter.
    pub(super) fn bind<T: ToSql + Sync + Send + 'a>(mut self, value: T) -> Query<'a> {
        self.params.push(Box::new(value));
        self
    }

    async fn run(&self, client: &Client) -> Result<Vec<Row>, tokio_postgres::Error> {
        let params: Vec<&(dyn ToSql + Sync)> = self.params.iter().map(|param| &**param as _).collect();
        client.query(self.statement, &params).await
    }
}

/// Sends `first`, the queries and `last`. Returns the first error: after it the server refuses the rest. If the client
/// cannot encode a query, the server does not know that it is missing; then `ROLLBACK` is sent instead of `last`.
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
    let mut begun = pin!(maybe_done(plain(first)));
    let queries = queries.iter().map(|query| Box::pin(maybe_done(query.run(client))));
    let mut queries: Vec<_> = queries.collect();
    // The first poll sends a statement.
    let _ = poll!(begun.as_mut());
    for query in &mut queries {
        let _ = poll!(query.as_mut());
    }
    let unsent = |query: &Pin<Box<_>>| matches!(**query, MaybeDone::Done(Err(_)));
    let last = match queries.iter().any(unsent) {
        true => last.and(Some("ROLLBACK")),
        false => last,
    };
    let ((), _, ended) = join!(
        begun.as_mut(),
        join_all(queries.iter_mut().map(Pin::as_mut)),
        plain(last)
    );
    begun.take_output().transpose()?;
    let rows = queries.iter_mut().filter_map(|query| query.as_mut().take_output());
    let rows = rows.collect::<Result<_, _>>()?;
    ended?;
    Ok(rows)
}
