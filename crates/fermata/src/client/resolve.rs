//! Ids that were shortened on the command line.
//!
//! An execution may be named by the beginning or by the end of its id. Ids are UUIDv7: the beginning is a time, so all
//! executions of one minute begin alike, and the end is random. A beginning is looked up among all executions (it is a
//! range of creation times); an end only among the newest [`LARGEST_PAGE`]. A workflow may be named by the beginning of
//! its id. A trigger may be named by the beginning of its id, and one that a document declares by `WORKFLOW/NAME`. An id that is
//! given in full is never taken for a shortened one.

use super::{Client, ClientError, LARGEST_PAGE, ago, text};
use crate::cli::Usage;
use fermata_expr::nearest;
use serde_json::Value;
use uuid::Uuid;

/// Fewer characters are too easily ambiguous, or a typing error.
const SHORTEST: usize = 4;
/// How many candidates an error lists.
const LISTED: usize = 5;
/// The hexadecimal digits of a UUIDv7 that are its time in milliseconds.
const TIME_DIGITS: usize = 12;

impl Client {
    /// The id of the execution that `given` names.
    pub(super) async fn execution_id(&self, given: &str) -> anyhow::Result<String> {
        let bare = given.strip_prefix("run_").unwrap_or(given).to_ascii_lowercase();
        if let Ok(id) = Uuid::parse_str(&bare) {
            return Ok(id.to_string());
        }
        let is_part = bare.len() >= SHORTEST && bare.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        if !is_part {
            return Err(Usage(format!(
                "`{given}` is not the id of an execution: write the id, or at least {SHORTEST} characters of its beginning \
                 or end; `fermata executions list` shows ids"
            ))
            .into());
        }
        let (from, to) = times(&bare);
        let begins = self
            .candidates(
                &[("createdAfter", from.to_string()), ("createdBefore", to.to_string())],
                |id| id.starts_with(&bare),
            )
            .await?;
        let found = match begins.is_empty() {
            true => self.candidates(&[], |id| id.ends_with(&bare)).await?,
            false => begins,
        };
        match found.as_slice() {
            [run] => Ok(text(run, "id")),
            [] => Err(Usage(format!(
                "no execution has an id that begins with `{given}`, and none of the newest {LARGEST_PAGE} has one that \
                 ends with it; `fermata executions list` shows ids"
            ))
            .into()),
            several => Err(Usage(ambiguous(given, several)).into()),
        }
    }

    async fn candidates(
        &self,
        query: &[(&str, String)],
        fits: impl Fn(&str) -> bool,
    ) -> Result<Vec<Value>, ClientError> {
        let (mut items, _) = self.list(&["executions"], query, LARGEST_PAGE).await?;
        items.retain(|run| fits(&text(run, "id")));
        Ok(items)
    }

    /// The id of the trigger that `given` names.
    pub(super) async fn trigger_id(&self, given: &str) -> anyhow::Result<String> {
        if let Ok(id) = Uuid::parse_str(given) {
            return Ok(id.to_string());
        }
        let part = given.to_ascii_lowercase();
        let is_part = part.len() >= SHORTEST && part.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        let declared = given.rsplit_once('/');
        if declared.is_none() && !is_part {
            return Err(Usage(format!(
                "`{given}` is not the id of a trigger: write the id, at least {SHORTEST} characters of its beginning, or \
                 WORKFLOW/NAME of a declared trigger; `fermata triggers list` shows ids and names"
            ))
            .into());
        }
        let query: Vec<_> = declared
            .map(|(workflow, _)| ("workflowId", workflow.to_owned()))
            .into_iter()
            .collect();
        let (mut found, _) = self.list(&["triggers"], &query, usize::MAX).await?;
        found.retain(|trigger| match declared {
            Some((_, name)) => text(trigger, "name") == name,
            None => text(trigger, "id").starts_with(&part),
        });
        match found.as_slice() {
            [trigger] => Ok(text(trigger, "id")),
            [] if given.contains('/') => Err(Usage(format!(
                "no document declares the trigger `{given}`; `fermata triggers list` shows ids and names"
            ))
            .into()),
            [] => Err(Usage(format!(
                "no trigger has an id that begins with `{given}`; `fermata triggers list` shows ids"
            ))
            .into()),
            several => {
                let listed = several.iter().take(LISTED).map(|trigger| {
                    let (id, kind) = (text(trigger, "id"), text(trigger, "triggerType"));
                    format!("\n  {id}  {kind}  {}", text(trigger, "workflowId"))
                });
                Err(Usage(format!(
                    "`{given}` could be any of these triggers; write more of the id:{}{}",
                    listed.collect::<String>(),
                    more(several.len())
                ))
                .into())
            }
        }
    }

    /// The id of the workflow that `given` names.
    pub(super) async fn workflow_id(&self, given: &str) -> anyhow::Result<String> {
        let missing = match self.get(&["workflows", given], &[]).await {
            Ok(_) => return Ok(given.to_owned()),
            Err(error) if error.is("WORKFLOW_NOT_FOUND") => error,
            // Whatever else it is, the request that follows meets it too and has the better message.
            Err(ClientError::Refused(_)) => return Ok(given.to_owned()),
            Err(error) => return Err(error.into()),
        };
        let (all, _) = self.list(&["workflows"], &[], LARGEST_PAGE).await?;
        let ids: Vec<String> = all.iter().map(|workflow| text(workflow, "id")).collect();
        let begin: Vec<&str> = ids
            .iter()
            .map(String::as_str)
            .filter(|id| id.starts_with(given))
            .collect();
        match begin.as_slice() {
            [id] => Ok((*id).to_owned()),
            [] => match nearest(given, ids.iter().map(String::as_str)) {
                Some(near) => anyhow::bail!("{missing}; did you mean `{near}`?"),
                None => anyhow::bail!("{missing}; `fermata workflows list` shows the ids of workflows"),
            },
            several => {
                let listed: Vec<String> = several.iter().take(LISTED).map(|id| format!("\n  {id}")).collect();
                let more = more(several.len());
                Err(Usage(format!(
                    "`{given}` could be any of these workflows; write more of the id:{}{more}",
                    listed.concat()
                ))
                .into())
            }
        }
    }
}

/// The range of creation times, in milliseconds, of all ids that begin with `part`: from the first, up to but without the
/// second.
fn times(part: &str) -> (u64, u64) {
    let digits: String = part.chars().filter(|c| *c != '-').take(TIME_DIGITS).collect();
    let known = u64::from_str_radix(&digits, 16).unwrap_or(0);
    let unknown_bits = 4 * (TIME_DIGITS - digits.len()) as u32;
    let last = (1_u64 << 48) - 1;
    let to = ((known + 1) << unknown_bits).min(last);
    ((known << unknown_bits).min(last), to)
}

fn ambiguous(given: &str, several: &[Value]) -> String {
    let listed = several.iter().take(LISTED).map(|run| {
        let (id, workflow, status) = (text(run, "id"), text(run, "workflowId"), text(run, "status"));
        format!("\n  {id}  {workflow}  {status}  {}", ago(run, "createdAt"))
    });
    format!(
        "`{given}` could be any of these executions; write more of the id, or its last characters:{}{}",
        listed.collect::<String>(),
        more(several.len())
    )
}

fn more(count: usize) -> String {
    match count.saturating_sub(LISTED) {
        0 => String::new(),
        hidden => format!("\n  … and {hidden} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginning_of_an_id_is_a_range_of_times() {
        assert_eq!(times("0199a7c2-1234"), (0x0199_a7c2_1234, 0x0199_a7c2_1235));
        assert_eq!(times("0199a7c2-1234-7abc"), (0x0199_a7c2_1234, 0x0199_a7c2_1235));
        assert_eq!(times("0199"), (0x0199_0000_0000, 0x019a_0000_0000));
        assert_eq!(times("ffff").1, (1 << 48) - 1);
    }
}
