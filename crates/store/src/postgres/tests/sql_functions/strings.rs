//! SQL injection (§16.5): hostile texts in every text parameter are stored unchanged or refused, and never executed.

use super::*;
use crate::conformance::commit::ALL;
use crate::reads::RunFilter;

const HOSTILE: [&str; 22] = [
    "'; DROP TABLE canary; --",
    "'); DROP TABLE canary; --",
    "' OR '1'='1",
    "'' ; DELETE FROM canary; /*",
    "\"; DROP TABLE canary; --",
    "$$; DROP TABLE canary; $$",
    "$1; DROP TABLE canary",
    "\\'; DROP TABLE canary; --",
    "E'\\x27; DROP TABLE canary'",
    "/* */ -- ; #",
    "%s %I %L %1$s %% %",
    "{{ trigger.a }} ${a} #{a}",
    "\u{2019}; DROP TABLE canary; \u{2014}\u{2014}",
    "\u{ff07}\u{ff1b} DROP TABLE canary",
    "\u{202e}elbat pord\u{202c} \u{200b}\u{feff}",
    "e\u{301} \u{1f4a5} \u{10ffff} \u{e000}",
    "\\0 \\x00 \\u0000 %00 \u{2400}",
    "NULL",
    "d1 m2@3",
    "fermata_news",
    " leading and trailing ",
    "*",
];

/// Control characters. They are refused in names, because they could forge log lines.
const CONTROLS: [&str; 5] = ["a\nb", "\r\n", "\t", "\u{1b}[2J", "x\u{85}y"];

struct Canary {
    app: App,
    store: Arc<dyn Store>,
    _database: Database,
}

impl Canary {
    async fn new() -> Canary {
        let (database, store, app) = setup().await;
        app.run("CREATE TABLE canary (a integer); INSERT INTO canary VALUES (1)")
            .await;
        Canary {
            app,
            store,
            _database: database,
        }
    }

    /// Checks that no SQL was executed: the canary row exists, and the catalog has the same number of objects.
    async fn lives(&self, objects: i64) {
        assert_eq!(self.app.number("SELECT count(*) FROM canary").await, 1);
        assert_eq!(self.objects().await, objects);
    }

    async fn objects(&self) -> i64 {
        let sql = "SELECT (SELECT count(*) FROM pg_class) + (SELECT count(*) FROM pg_proc)
            + (SELECT count(*) FROM pg_roles)";
        self.app.number(sql).await
    }

    /// Calls with the text as a parameter, and again with the text as a quoted literal.
    async fn both(&self, sql: &str, text: &str) -> [Result<String, Refused>; 2] {
        let bound = self.app.one(&sql.replace("???", "$1::text"), &[&text]).await;
        let quoted = format!("'{}'", text.replace('\'', "''"));
        let written = self.app.one(&sql.replace("???", &quoted), &[]).await;
        [bound, written].map(|answer| answer.map(|row| row.get(0)))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_stores_hostile_texts_unchanged() {
    let canary = Canary::new().await;
    let (app, store) = (&canary.app, &canary.store);
    let objects = canary.objects().await;
    let start = "SELECT execution_id::text FROM sp_start_workflow_execution";
    for text in HOSTILE {
        let [first, again] = canary.both(&format!("{start}('{WORKFLOW}', ???, '{{}}')"), text).await;
        assert_eq!(first, again, "the same request: {text}");
        let run: RunId = first.unwrap().parse().unwrap();
        assert_eq!(record(store, run).await.request_id, text);
        let tenant = format!("{start}('{WORKFLOW}', 'r', '{{}}', p_tenant_id => ???, p_correlation_id => ???)");
        let [first, again] = canary.both(&tenant, text).await;
        assert_eq!(first, again, "the same tenant: {text}");
        let of_tenant = record(store, first.unwrap().parse().unwrap()).await;
        assert_eq!(
            (of_tenant.tenant.as_str(), of_tenant.correlation_id.as_deref()),
            (text, Some(text))
        );
        for answer in canary.both(&format!("{start}(???, 'q', '{{}}')"), text).await {
            expect(answer, "P0002", &format!("workflow \"{text}\" does not exist"));
        }
        let trigger = format!("{start}('{WORKFLOW}', NULL, jsonb_build_object(???, ???))");
        for answer in canary.both(&trigger, text).await {
            let kept = record(store, answer.unwrap().parse().unwrap()).await.trigger;
            let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
            assert_eq!(kept, serde_json::json!({ text: text }));
        }
        // The text also works as the name of a workflow.
        publish(store, text, "one").await;
        let [one, _] = canary.both(&format!("{start}(???, NULL, '{{}}')"), text).await;
        assert_eq!(record(store, one.unwrap().parse().unwrap()).await.workflow_id, text);
        canary.lives(objects).await;
    }
    for text in CONTROLS {
        for place in [
            "'w', ???, '{}'",
            "'w', 'q', '{}', NULL, ???",
            "'w', 'q', '{}', NULL, NULL, ???",
        ] {
            for answer in canary.both(&format!("{start}({place})"), text).await {
                expect(answer, "WF005", "no control characters");
            }
        }
    }
    // PostgreSQL itself refuses NUL in any text.
    for params in [
        ["a\0b", "r", "{}"],
        [WORKFLOW, "a\0b", "{}"],
        [WORKFLOW, "r", "{\"a\":\"\0\"}"],
    ] {
        let answer = app.one(START, &[&params[0], &params[1], &params[2]]).await.map(drop);
        expect(answer, "22021", "invalid byte sequence");
    }
    let answer = app
        .one(START, &[&WORKFLOW, &"nul", &r#"{"a":"\u0000"}"#])
        .await
        .map(drop);
    expect(answer, "22P05", "unsupported Unicode escape");
    let search = RunFilter {
        request_id: Some("nul".to_owned()),
        limit: 9,
        ..Default::default()
    };
    assert_eq!(store.runs(search).await.unwrap().items.len(), 0);
    canary.lives(objects).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_functions_store_or_refuse_hostile_texts() {
    let canary = Canary::new().await;
    let (app, store) = (&canary.app, &canary.store);
    let objects = canary.objects().await;
    let run = app.held("r1").await;
    let base = app.record(run, "n", "Succeeded", 1).await.unwrap();
    for text in HOSTILE {
        let node = format!("SELECT sp_record_action_attempt('{run}', ???, ???, 'Skipped')::text");
        let [first, again] = canary.both(&node, text).await;
        assert_eq!(first.unwrap(), again.unwrap(), "the same attempt: {text}");
        let attempts = store.last_attempts(run, &[text.into()]).await.unwrap();
        assert_eq!(
            (attempts[0].node.as_str(), attempts[0].action_type.as_str()),
            (text, text)
        );
        for sql in [
            format!("SELECT sp_record_action_attempt('{run}', 'n', 'a', ???)::text"),
            format!("SELECT sp_complete_workflow('{run}', ???)::text"),
        ] {
            for answer in canary.both(&sql, text).await {
                expect(answer, "WF005", &format!("not \"{text}\""));
            }
        }
        let link = format!("SELECT sp_link_external_resource('{run}', '{base}', ???, ???, ???, ???)");
        let [first, again] = canary.both(&link, text).await;
        assert_eq!(
            (first.unwrap().as_str(), again.unwrap().as_str()),
            ("created", "exists_same_execution")
        );
        for answer in canary
            .both(
                "SELECT execution_id::text FROM sp_check_resource_exists(???, ???, ???)",
                text,
            )
            .await
        {
            assert_eq!(answer.unwrap(), run.to_string());
        }
        canary.lives(objects).await;
    }
    let links = store.links(run, ALL).await.unwrap().0;
    assert_eq!(links.len(), HOSTILE.len());
    for text in HOSTILE {
        let mut linked = links
            .iter()
            .filter(|link| link.system == text && link.resource_type == text);
        assert!(linked.any(|link| link.resource_id == text && link.url.as_deref() == Some(text)));
    }
    for text in CONTROLS {
        for sql in [
            format!("SELECT sp_record_action_attempt('{run}', ???, 'a', 'Failed')::text"),
            format!("SELECT sp_record_action_attempt('{run}', 'n', ???, 'Failed')::text"),
            format!("SELECT sp_link_external_resource('{run}', '{base}', ???, 't', 'i')"),
            format!("SELECT sp_link_external_resource('{run}', '{base}', 's', ???, 'i')"),
            format!("SELECT sp_link_external_resource('{run}', '{base}', 's', 't', ???)"),
        ] {
            for answer in canary.both(&sql, text).await {
                expect(answer, "WF005", "no control characters");
            }
        }
    }
    app.complete(run, "Succeeded").await.unwrap();
    canary.lives(objects).await;
}
