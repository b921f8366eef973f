-- A database of Fermata 0.1.0 whose process was killed: `sqlite3 fermata.db .dump`, without the rows of `runners`.
PRAGMA application_id = 1181053549;
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE meta (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES('oldest_program','0.1.0');
CREATE TABLE schema_version (
      version INTEGER NOT NULL PRIMARY KEY,
      name TEXT NOT NULL,
      applied_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
    );
INSERT INTO schema_version VALUES(1,'first','2026-11-17 19:16:44');
INSERT INTO schema_version VALUES(2,'lifecycle and lists','2026-11-17 19:16:44');
INSERT INTO schema_version VALUES(3,'workflows without drafts','2026-11-17 19:16:44');
INSERT INTO schema_version VALUES(4,'runners and dead letters','2026-11-17 19:16:44');
INSERT INTO schema_version VALUES(5,'workflows by uid','2026-11-17 19:16:44');
INSERT INTO schema_version VALUES(6,'public url','2026-11-17 19:16:44');
INSERT INTO schema_version VALUES(7,'deadlines of waits','2026-11-17 19:16:44');
INSERT INTO schema_version VALUES(8,'plans','2026-11-17 19:16:44');
INSERT INTO schema_version VALUES(9,'inbox','2026-11-17 19:16:44');
INSERT INTO schema_version VALUES(10,'child runs','2026-11-17 19:16:44');
INSERT INTO schema_version VALUES(11,'registered callbacks','2026-11-17 19:16:44');
CREATE TABLE execution_events (
  workflow_execution_id BLOB    NOT NULL,
  seq                   INTEGER NOT NULL,
  ts                    INTEGER NOT NULL,
  data                  TEXT    NOT NULL,
  level                 TEXT    NOT NULL DEFAULT 'Info',
  category              TEXT    NOT NULL DEFAULT 'Orchestrator',
  PRIMARY KEY (workflow_execution_id, seq)
) WITHOUT ROWID;
INSERT INTO execution_events VALUES(X'01a1eaf0de84705aa477ee9fc8beca8c',1,1794943016583674,'{"v":1,"events":[{"type":"started","at":1794943016583674,"deadline":4948543016583674},{"type":"opened","node":"wait","at":1794943016583674}]}','Info','Orchestrator');
INSERT INTO execution_events VALUES(X'01a1eaf0dedd7026b6f83ea16103e118',1,1794943016669782,'{"v":1,"events":[{"type":"started","at":1794943016669782,"deadline":4948543016669782},{"type":"opened","node":"wait","at":1794943016669782}]}','Info','Orchestrator');
INSERT INTO execution_events VALUES(X'01a1eaf0dee876bd8501aee4b67d2994',1,1794943016680739,'{"v":1,"events":[{"type":"started","at":1794943016680739,"deadline":4948543016680739},{"type":"opened","node":"wait","at":1794943016680739}]}','Info','Orchestrator');
INSERT INTO execution_events VALUES(X'01a1eaf0df0875b8bb5e32cca102870e',1,1794943016712966,'{"v":1,"events":[{"type":"started","at":1794943016712966,"deadline":4948543016712966},{"type":"opened","node":"d","at":1794943016712966}]}','Info','Orchestrator');
INSERT INTO execution_events VALUES(X'01a1eaf0df0875b8bb5e32cca102870e',2,1794943016713560,'{"v":1,"events":[{"type":"slept","node":"d","until":1794943076713560}]}','Info','Orchestrator');
INSERT INTO execution_events VALUES(X'01a1eaf0df28738b97589461985361c5',1,1794943016744723,'{"v":1,"events":[{"type":"started","at":1794943016744723,"deadline":4948543016744723},{"type":"opened","node":"call","at":1794943016744723}]}','Info','Orchestrator');
INSERT INTO execution_events VALUES(X'01a1eaf0df28738b97589461985361c5',2,1794943016747779,'{"v":1,"events":[{"type":"requested","node":"call","attempt":1}]}','Info','Orchestrator');
INSERT INTO execution_events VALUES(X'01a1eaf0df2975f7aec905d424e15d7d',1,1794943016745754,'{"v":1,"events":[{"type":"started","at":1794943016745754,"deadline":4948543016745754},{"type":"opened","node":"wait","at":1794943016745754}]}','Info','Orchestrator');
INSERT INTO execution_events VALUES(X'01a1eaf0df4571c7ba09c880aeb666df',1,1794943016774077,'{"v":1,"events":[{"type":"started","at":1794943016774077,"deadline":4948543016774077},{"type":"opened","node":"ok","at":1794943016774077}]}','Info','Orchestrator');
INSERT INTO execution_events VALUES(X'01a1eaf0df4571c7ba09c880aeb666df',2,1794943016774762,'{"v":1,"events":[{"type":"requested","node":"ok","attempt":1}]}','Info','Orchestrator');
INSERT INTO execution_events VALUES(X'01a1eaf0df66736b96a7e00f0d67a093',1,1794943016806359,'{"v":1,"events":[{"type":"started","at":1794943016806359,"deadline":1794946616806359},{"type":"opened","node":"a","at":1794943016806359}]}','Info','Orchestrator');
INSERT INTO execution_events VALUES(X'01a1eaf0df66736b96a7e00f0d67a093',2,1794943016809366,'{"v":1,"events":[{"type":"finished","node":"a","attempt":1,"outcome":{"succeeded":{"bytes":13,"shape":"object"}}},{"type":"routed","node":"a","taken":[]},{"type":"ended","at":1794943016809366,"status":"Succeeded"}]}','Info','Orchestrator');
CREATE TABLE action_executions (
  workflow_execution_id BLOB    NOT NULL,
  node_id               TEXT    NOT NULL,
  attempt               INTEGER NOT NULL,
  action_type           TEXT    NOT NULL,
  status                TEXT    NOT NULL,
  start_time            INTEGER,
  end_time              INTEGER NOT NULL,
  parameters_json       TEXT,
  outputs_json          TEXT,
  error_json            TEXT,
  PRIMARY KEY (workflow_execution_id, node_id, attempt)
) WITHOUT ROWID;
INSERT INTO action_executions VALUES(X'01a1eaf0df66736b96a7e00f0d67a093','a',1,'core.echo','Succeeded',1794943016809348,1794943016809360,'{"text":"hi"}','{"text":"hi"}',NULL);
CREATE TABLE workflow_resource_links (
  system_name           TEXT    NOT NULL,
  resource_type         TEXT    NOT NULL,
  resource_id           TEXT    NOT NULL,
  workflow_execution_id BLOB    NOT NULL,
  node_id               TEXT    NOT NULL,
  attempt               INTEGER NOT NULL,
  external_url          TEXT,
  created_at            INTEGER NOT NULL,
  PRIMARY KEY (system_name, resource_type, resource_id)
) WITHOUT ROWID;
CREATE TABLE run_waits (
  token                 TEXT    NOT NULL PRIMARY KEY,
  workflow_execution_id BLOB    NOT NULL,
  node_id               TEXT    NOT NULL,
  is_open               INTEGER NOT NULL DEFAULT 1,
  payload_json          TEXT,
  -- The letter that announced the answer.
  answer_seq            INTEGER
, deadline INTEGER, attempt INTEGER NOT NULL DEFAULT 1, item_id BLOB, queue TEXT, tenant_id TEXT, workflow_id TEXT, kind TEXT, item_json TEXT, created_at INTEGER, lease_id BLOB, worker TEXT, lease_until INTEGER, progress_json TEXT, answered_by TEXT, answered_at INTEGER) WITHOUT ROWID;
INSERT INTO run_waits VALUES('1a2e839d382745a38d595dff36c4172cb7a25f46bf4e4bfd955c97f7b13d2983',X'01a1eaf0de84705aa477ee9fc8beca8c','wait',1,NULL,NULL,4948543016583674,1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO run_waits VALUES('a09ba461436644fc94669bb9523c8885a9186181916e4661ab265f4b4f559383',X'01a1eaf0dedd7026b6f83ea16103e118','wait',1,NULL,NULL,4948543016669782,1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO run_waits VALUES('ae98411285ae49d189652c714f24bb2fa0e1a44e85f64294a4d45358949273a4',X'01a1eaf0df2975f7aec905d424e15d7d','wait',1,NULL,NULL,4948543016745754,1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO run_waits VALUES('d229a96e3c704a93addc3dbedfa3a3f801cc35b2c181420d9f0a0d38feb48125',X'01a1eaf0dee876bd8501aee4b67d2994','wait',1,NULL,NULL,4948543016680739,1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO run_waits VALUES('fb92f38e90634a8c9c1a95ad00efa114f5a4712289bc4221a67d7f5deb4841c0',X'01a1eaf0df4571c7ba09c880aeb666df','ok',1,NULL,NULL,4948543016774077,1,X'01a1eaf0df4670c1b5b1c77cdfffbf1b','approve','','approve','approval','{"title":"May it go on?","outcomes":["yes","no"],"asOf":0}',1794943016774762,NULL,NULL,0,NULL,NULL,NULL);
CREATE TABLE run_inbox (
  workflow_execution_id BLOB    NOT NULL,
  seq                   INTEGER NOT NULL,
  ts                    INTEGER NOT NULL,
  letter                TEXT    NOT NULL,
  PRIMARY KEY (workflow_execution_id, seq)
) WITHOUT ROWID;
CREATE TABLE runners (
  id           BLOB    NOT NULL PRIMARY KEY,
  heartbeat_at INTEGER NOT NULL
, host       TEXT    NOT NULL DEFAULT '', pid        INTEGER NOT NULL DEFAULT 0, version    TEXT    NOT NULL DEFAULT '', role       TEXT    NOT NULL DEFAULT '', started_at INTEGER NOT NULL DEFAULT 0, public_url TEXT NOT NULL DEFAULT '') WITHOUT ROWID;
CREATE TABLE workflow_version_marks (
  workflow_id    TEXT    NOT NULL PRIMARY KEY,
  latest_version INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE workflows (
  uid             BLOB    NOT NULL PRIMARY KEY,
  id              TEXT    NOT NULL,
  display_name    TEXT    NOT NULL,
  description     TEXT,
  dialect         TEXT    NOT NULL,
  current_version INTEGER,
  latest_version  INTEGER,
  status          TEXT    NOT NULL DEFAULT 'Draft' CHECK (status IN ('Draft', 'Active', 'Archived')),
  is_enabled      INTEGER NOT NULL DEFAULT 1,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  -- A workflow with this is there only for its runs.
  deleted_at      INTEGER
) WITHOUT ROWID;
INSERT INTO workflows VALUES(X'01a1eaf0de4d714bbc28bd54577fe023','ask','Ask','second','dataworkflows',2,2,'Active',1,1794943016525952,1794943016623699,NULL);
INSERT INTO workflows VALUES(X'01a1eaf0debc775ca0d2b5b2159e92ec','draft-only','D',NULL,'dataworkflows',NULL,NULL,'Draft',1,1794943016636323,1794943016636323,NULL);
INSERT INTO workflows VALUES(X'01a1eaf0dec5739da3156ca0ef9240a6','nap','nap',NULL,'runlater',1,1,'Active',1,1794943016645461,1794943016645461,NULL);
INSERT INTO workflows VALUES(X'01a1eaf0def2760ea2e8823207b1d3d2','delay','D',NULL,'dataworkflows',1,1,'Active',1,1794943016690139,1794943016701258,NULL);
INSERT INTO workflows VALUES(X'01a1eaf0df107562bfdd572ff4cab100','parent','P',NULL,'dataworkflows',1,1,'Active',1,1794943016720519,1794943016732786,NULL);
INSERT INTO workflows VALUES(X'01a1eaf0df32741b89e6c09f0ca72935','approve','A',NULL,'dataworkflows',1,1,'Active',1,1794943016754901,1794943016764811,NULL);
INSERT INTO workflows VALUES(X'01a1eaf0df50745292b80161eb1010db','echo','E',NULL,'dataworkflows',1,1,'Active',1,1794943016784361,1794943016799474,NULL);
CREATE TABLE workflow_definitions (
  workflow_uid      BLOB    NOT NULL,
  version           INTEGER NOT NULL,
  workflow_id       TEXT    NOT NULL,
  dialect           TEXT    NOT NULL,
  definition_source BLOB    NOT NULL,
  checksum          TEXT    NOT NULL,
  created_at        INTEGER NOT NULL,
  PRIMARY KEY (workflow_uid, version)
) WITHOUT ROWID;
INSERT INTO workflow_definitions VALUES(X'01a1eaf0de4d714bbc28bd54577fe023',1,'ask','dataworkflows',X'7b226964223a2261736b222c22646973706c61794e616d65223a2241736b222c2274696d656f75744d73223a333135333630303030303030302c226465736372697074696f6e223a226669727374222c2273746172744e6f6465223a2277616974222c226e6f646573223a5b7b226964223a2277616974222c22616374696f6e54797065223a22636f72652e77616974222c226564676573223a5b7b227461726765744e6f6465223a22736179227d5d7d2c7b226964223a22736179222c22616374696f6e54797065223a22636f72652e6563686f222c22706172616d6574657273223a7b22616e73776572223a227b7b20636f6e746578742e646174615b2777616974275d207d7d227d7d5d7d','c0a624e00b7517790780803c839a8ae67e5c3cec9d5b730f2f463ccc9b9ac642',1794943016567942);
INSERT INTO workflow_definitions VALUES(X'01a1eaf0de4d714bbc28bd54577fe023',2,'ask','dataworkflows',X'7b226964223a2261736b222c22646973706c61794e616d65223a2241736b222c2274696d656f75744d73223a333135333630303030303030302c226465736372697074696f6e223a227365636f6e64222c2273746172744e6f6465223a2277616974222c226e6f646573223a5b7b226964223a2277616974222c22616374696f6e54797065223a22636f72652e77616974222c226564676573223a5b7b227461726765744e6f6465223a22736179227d5d7d2c7b226964223a22736179222c22616374696f6e54797065223a22636f72652e6563686f222c22706172616d6574657273223a7b22616e73776572223a227b7b20636f6e746578742e646174615b2777616974275d207d7d227d7d5d7d','ce8f7ff7b3e0b3d3a0439dd660bf992b73e50e5a096c509a642feb691be6f0d1',1794943016613770);
INSERT INTO workflow_definitions VALUES(X'01a1eaf0dec5739da3156ca0ef9240a6',1,'nap','runlater',X'7b226e616d65223a226e6170222c227461736b73223a7b226e6170223a7b22736c656570223a223173227d7d7d','643a1e5415ea07a43d7ce0ac0a9fc7a3ed37b0ee86edb5c20ae97865dc34ff9a',1794943016645461);
INSERT INTO workflow_definitions VALUES(X'01a1eaf0def2760ea2e8823207b1d3d2',1,'delay','dataworkflows',X'7b226964223a2264656c6179222c22646973706c61794e616d65223a2244222c2274696d656f75744d73223a333135333630303030303030302c2273746172744e6f6465223a2264222c226e6f646573223a5b7b226964223a2264222c22616374696f6e54797065223a22636f72652e64656c6179222c22706172616d6574657273223a7b226475726174696f6e4d73223a36303030307d7d5d7d','d847cb77dccab655aa7e9d6e2f976cde10717e612fd52b972d59231a70492b80',1794943016701258);
INSERT INTO workflow_definitions VALUES(X'01a1eaf0df107562bfdd572ff4cab100',1,'parent','dataworkflows',X'7b226964223a22706172656e74222c22646973706c61794e616d65223a2250222c2274696d656f75744d73223a333135333630303030303030302c2273746172744e6f6465223a2263616c6c222c226e6f646573223a5b7b226964223a2263616c6c222c226e6f646554797065223a22737562776f726b666c6f77222c22776f726b666c6f774964223a2261736b222c22706172616d6574657273223a7b226e223a347d7d5d7d','187bd83359827d06af447c27fd34baaedd0735c8ce73e64d24e8a8d5d3325571',1794943016732786);
INSERT INTO workflow_definitions VALUES(X'01a1eaf0df32741b89e6c09f0ca72935',1,'approve','dataworkflows',X'7b226964223a22617070726f7665222c22646973706c61794e616d65223a2241222c2274696d656f75744d73223a333135333630303030303030302c2273746172744e6f6465223a226f6b222c226e6f646573223a5b7b226964223a226f6b222c22616374696f6e54797065223a22636f72652e617070726f76616c222c22706172616d6574657273223a7b227469746c65223a224d617920697420676f206f6e3f222c226f7574636f6d6573223a5b22796573222c226e6f225d7d7d5d7d','5033f3b05dd8d6fcfecdd02a96ed47bb9b6cbb728bc60a4729c9b30db74707b1',1794943016764811);
INSERT INTO workflow_definitions VALUES(X'01a1eaf0df50745292b80161eb1010db',1,'echo','dataworkflows',X'7b226964223a226563686f222c22646973706c61794e616d65223a2245222c2273746172744e6f6465223a2261222c226e6f646573223a5b7b226964223a2261222c22616374696f6e54797065223a22636f72652e6563686f222c22706172616d6574657273223a7b2274657874223a226869227d7d5d7d','6c649809de4281a0a41d1831cb61a9f1f69262326593688f9bb60759fc63a566',1794943016799474);
CREATE TABLE workflow_drafts (
  workflow_uid      BLOB    NOT NULL PRIMARY KEY,
  workflow_id       TEXT    NOT NULL,
  display_name      TEXT    NOT NULL,
  description       TEXT,
  dialect           TEXT    NOT NULL,
  definition_source BLOB    NOT NULL,
  checksum          TEXT    NOT NULL,
  updated_at        INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO workflow_drafts VALUES(X'01a1eaf0de4d714bbc28bd54577fe023','ask','Ask','third','dataworkflows',X'7b226964223a2261736b222c22646973706c61794e616d65223a2241736b222c2274696d656f75744d73223a333135333630303030303030302c226465736372697074696f6e223a227468697264222c2273746172744e6f6465223a2277616974222c226e6f646573223a5b7b226964223a2277616974222c22616374696f6e54797065223a22636f72652e77616974222c226564676573223a5b7b227461726765744e6f6465223a22736179227d5d7d2c7b226964223a22736179222c22616374696f6e54797065223a22636f72652e6563686f222c22706172616d6574657273223a7b22616e73776572223a227b7b20636f6e746578742e646174615b2777616974275d207d7d227d7d5d7d','7b73ca68f5febbcd6314d3ad387d50f06d1a1ca3a6f4c3f06d3fed579bf1e4d6',1794943016623699);
INSERT INTO workflow_drafts VALUES(X'01a1eaf0debc775ca0d2b5b2159e92ec','draft-only','D',NULL,'dataworkflows',X'7b226964223a2264726166742d6f6e6c79222c22646973706c61794e616d65223a2244222c2273746172744e6f6465223a2261222c226e6f646573223a5b7b226964223a2261222c22616374696f6e54797065223a22636f72652e6563686f227d5d7d','fa45e858108115d37fcfce86b181521c037f367357e92f3b5560b73a5616899d',1794943016636323);
CREATE TABLE workflow_executions (
  id                     BLOB    NOT NULL PRIMARY KEY,
  status                 TEXT    NOT NULL,
  lease_owner            BLOB,
  lease_epoch            INTEGER NOT NULL DEFAULT 0,
  takeovers              INTEGER NOT NULL DEFAULT 0,
  wake_at                INTEGER,
  inbox_seq              INTEGER NOT NULL DEFAULT 0,
  inbox_seen             INTEGER NOT NULL DEFAULT 0,
  workflow_uid           BLOB    NOT NULL,
  workflow_id            TEXT    NOT NULL,
  workflow_version       INTEGER NOT NULL,
  tenant_id              TEXT    NOT NULL DEFAULT '',
  workflow_request_id    TEXT    NOT NULL,
  priority               INTEGER,
  correlation_id         TEXT,
  parent_execution_id    BLOB,
  requester_user_id      TEXT    NOT NULL,
  requester_email        TEXT,
  requester_display_name TEXT,
  created_at             INTEGER NOT NULL,
  start_time             INTEGER,
  end_time               INTEGER,
  reason                 TEXT,
  error_json             TEXT,
  trigger_payload_json   TEXT    NOT NULL,
  spec_json              TEXT,
  outputs_json           TEXT,
  context_snapshot_json  TEXT
, parent_node_id TEXT, parent_attempt INTEGER, parent_item INTEGER, parent_waits INTEGER, depth INTEGER, lineage TEXT) WITHOUT ROWID;
INSERT INTO workflow_executions VALUES(X'01a1eaf0de84705aa477ee9fc8beca8c','Running',NULL,1,0,4948543016583674,0,0,X'01a1eaf0de4d714bbc28bd54577fe023','ask',1,'','first version',NULL,NULL,NULL,'system',NULL,'System',1794943016583674,1794943016583674,NULL,NULL,NULL,'{"n":3}',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO workflow_executions VALUES(X'01a1eaf0dedd7026b6f83ea16103e118','Running',NULL,1,0,4948543016669782,0,0,X'01a1eaf0de4d714bbc28bd54577fe023','ask',2,'','one',NULL,NULL,NULL,'system',NULL,'System',1794943016669782,1794943016669782,NULL,NULL,NULL,'{"n":1}',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO workflow_executions VALUES(X'01a1eaf0dee876bd8501aee4b67d2994','Running',NULL,1,0,4948543016680739,0,0,X'01a1eaf0de4d714bbc28bd54577fe023','ask',2,'acme','one',NULL,NULL,NULL,'system',NULL,'System',1794943016680739,1794943016680739,NULL,NULL,NULL,'{"n":2}',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO workflow_executions VALUES(X'01a1eaf0df0875b8bb5e32cca102870e','Running',NULL,1,0,1794943076713560,0,0,X'01a1eaf0def2760ea2e8823207b1d3d2','delay',1,'','delay',NULL,NULL,NULL,'system',NULL,'System',1794943016712966,1794943016712966,NULL,NULL,NULL,'{}',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO workflow_executions VALUES(X'01a1eaf0df28738b97589461985361c5','Running',X'01a1eaf0addd7305ae7665c832120f04',1,0,1794943016744723,0,0,X'01a1eaf0df107562bfdd572ff4cab100','parent',1,'','parent',NULL,NULL,NULL,'system',NULL,'System',1794943016744723,1794943016744723,NULL,NULL,NULL,'{}',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO workflow_executions VALUES(X'01a1eaf0df2975f7aec905d424e15d7d','Running',NULL,1,0,4948543016745754,0,0,X'01a1eaf0de4d714bbc28bd54577fe023','ask',2,'','fermata:child:01a1eaf0-df28-738b-9758-9461985361c5:call:1',NULL,'01a1eaf0-df28-738b-9758-9461985361c5',X'01a1eaf0df28738b97589461985361c5','system',NULL,'System',1794943016745754,1794943016745754,NULL,NULL,NULL,'{"n":4}',NULL,NULL,NULL,'call',1,NULL,1,1,'["01a1eaf0-df10-7562-bfdd-572ff4cab100"]');
INSERT INTO workflow_executions VALUES(X'01a1eaf0df4571c7ba09c880aeb666df','Running',NULL,1,0,4948543016774077,0,0,X'01a1eaf0df32741b89e6c09f0ca72935','approve',1,'','approval',NULL,NULL,NULL,'system',NULL,'System',1794943016774077,1794943016774077,NULL,NULL,NULL,'{}',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO workflow_executions VALUES(X'01a1eaf0df66736b96a7e00f0d67a093','Succeeded',NULL,1,0,NULL,0,0,X'01a1eaf0df50745292b80161eb1010db','echo',1,'','done',NULL,NULL,NULL,'system',NULL,'System',1794943016806359,1794943016806359,1794943016809366,NULL,NULL,'{}',NULL,'{"text":"hi"}','{"a":{"bytes":13,"type":"object"}}',NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE dead_letters (
  id                    BLOB    NOT NULL PRIMARY KEY,
  enqueued_at           INTEGER NOT NULL,
  reason                TEXT    NOT NULL,
  workflow_execution_id BLOB    NOT NULL,
  workflow_uid          BLOB    NOT NULL,
  workflow_id           TEXT    NOT NULL,
  workflow_version      INTEGER NOT NULL,
  tenant_id             TEXT    NOT NULL DEFAULT '',
  attempts              INTEGER NOT NULL DEFAULT 0,
  last_error            TEXT,
  payload_json          TEXT    NOT NULL
) WITHOUT ROWID;
CREATE TABLE workflow_plans (
  workflow_uid BLOB    NOT NULL,
  version      INTEGER NOT NULL,
  workflow_id  TEXT    NOT NULL,
  plan_json    TEXT    NOT NULL,
  created_at   INTEGER NOT NULL,
  PRIMARY KEY (workflow_uid, version)
) WITHOUT ROWID;
INSERT INTO workflow_plans VALUES(X'01a1eaf0de4d714bbc28bd54577fe023',1,'ask','{"v":1,"plan":{"workflow":"ask","displayName":"Ask","dialect":"dataworkflows","nodes":[{"id":"wait","kind":{"type":"wait"},"join":"any","route":"parallel","policies":{"timeoutMs":300000,"retry":{"maxAttempts":4,"baseDelayMs":2000,"backoffFactor":2.0,"jitter":true},"rerenderOnRetry":false},"edges":[{"target":1,"when":"success"}]},{"id":"say","kind":{"type":"action","action":"core.echo","parameters":{"answer":"{{ context.data[''wait''] }}"}},"join":"any","route":"parallel","policies":{"timeoutMs":300000,"retry":{"maxAttempts":4,"baseDelayMs":2000,"backoffFactor":2.0,"jitter":true},"rerenderOnRetry":false},"edges":[]}],"onFailure":"failFast","timeoutMs":3153600000000,"context":{"mode":"SummaryOnly","keysToInclude":[],"maxContextSizeBytes":10485760,"overflowBehavior":"Fail"},"scope":{"names":[{"path":["trigger"],"source":"trigger"},{"path":["context","data"],"source":"entries"},{"path":["vars"],"source":"vars"},{"path":["spec"],"source":"spec"},{"path":["wait"],"source":"waits"}],"entries":{"succeeded":{"output":[]},"answered":{"output":[]},"failed":{"object":[{"name":"error","form":{"object":[{"name":"code","form":"errorCode"},{"name":"message","form":"errorMessage"}]}},{"name":"errorNode","form":"node"},{"name":"status","form":"status"}]}},"words":{"pending":"pending","running":"running","sleeping":"sleeping","waiting":"waiting","succeeded":"succeeded","answered":"succeeded","failed":"failed","skipped":"skipped"}},"language":"script","templates":{"strict":true,"nullText":"","loops":false,"functions":false}}}',1794943016567942);
INSERT INTO workflow_plans VALUES(X'01a1eaf0de4d714bbc28bd54577fe023',2,'ask','{"v":1,"plan":{"workflow":"ask","displayName":"Ask","dialect":"dataworkflows","nodes":[{"id":"wait","kind":{"type":"wait"},"join":"any","route":"parallel","policies":{"timeoutMs":300000,"retry":{"maxAttempts":4,"baseDelayMs":2000,"backoffFactor":2.0,"jitter":true},"rerenderOnRetry":false},"edges":[{"target":1,"when":"success"}]},{"id":"say","kind":{"type":"action","action":"core.echo","parameters":{"answer":"{{ context.data[''wait''] }}"}},"join":"any","route":"parallel","policies":{"timeoutMs":300000,"retry":{"maxAttempts":4,"baseDelayMs":2000,"backoffFactor":2.0,"jitter":true},"rerenderOnRetry":false},"edges":[]}],"onFailure":"failFast","timeoutMs":3153600000000,"context":{"mode":"SummaryOnly","keysToInclude":[],"maxContextSizeBytes":10485760,"overflowBehavior":"Fail"},"scope":{"names":[{"path":["trigger"],"source":"trigger"},{"path":["context","data"],"source":"entries"},{"path":["vars"],"source":"vars"},{"path":["spec"],"source":"spec"},{"path":["wait"],"source":"waits"}],"entries":{"succeeded":{"output":[]},"answered":{"output":[]},"failed":{"object":[{"name":"error","form":{"object":[{"name":"code","form":"errorCode"},{"name":"message","form":"errorMessage"}]}},{"name":"errorNode","form":"node"},{"name":"status","form":"status"}]}},"words":{"pending":"pending","running":"running","sleeping":"sleeping","waiting":"waiting","succeeded":"succeeded","answered":"succeeded","failed":"failed","skipped":"skipped"}},"language":"script","templates":{"strict":true,"nullText":"","loops":false,"functions":false}}}',1794943016613770);
INSERT INTO workflow_plans VALUES(X'01a1eaf0dec5739da3156ca0ef9240a6',1,'nap','{"v":1,"plan":{"workflow":"nap","displayName":"nap","dialect":"runlater","nodes":[{"id":"nap","kind":{"type":"sleep","action":"core.delay","parameters":{"durationMs":1000}},"join":"all","route":"parallel","policies":{"timeoutMs":300000,"retry":{"maxAttempts":4,"baseDelayMs":2000,"backoffFactor":2.0,"jitter":true},"rerenderOnRetry":false},"edges":[]}],"onFailure":"continue","timeoutMs":2592000000,"context":{"mode":"SummaryOnly","keysToInclude":[],"maxContextSizeBytes":10485760,"overflowBehavior":"DropOversize"},"scope":{"names":[{"path":["trigger","body"],"source":"trigger"},{"path":["trigger","headers"],"source":{"fixed":{}}},{"path":["tasks"],"source":"entries"},{"path":["wait"],"source":"waits"}],"entries":{"succeeded":{"object":[{"name":"status","form":"status"},{"name":"status_code","form":{"output":["status"]}},{"name":"body","form":{"output":["body"]}},{"name":"headers","form":{"output":["headers"]}},{"name":"isTruncated","form":{"output":["isTruncated"]},"optional":true},{"name":"bodyError","form":{"output":["bodyError"]},"optional":true}]},"answered":{"object":[{"name":"status","form":"status"},{"name":"status_code","form":"null"},{"name":"body","form":{"output":[]}},{"name":"headers","form":"null"}]},"failed":{"object":[{"name":"status","form":"status"},{"name":"status_code","form":{"output":["status"]}},{"name":"body","form":{"output":["body"]}},{"name":"headers","form":{"output":["headers"]}},{"name":"isTruncated","form":{"output":["isTruncated"]},"optional":true},{"name":"bodyError","form":{"output":["bodyError"]},"optional":true}]},"skipped":{"object":[{"name":"status","form":"status"},{"name":"status_code","form":{"output":["status"]}},{"name":"body","form":{"output":["body"]}},{"name":"headers","form":{"output":["headers"]}},{"name":"isTruncated","form":{"output":["isTruncated"]},"optional":true},{"name":"bodyError","form":{"output":["bodyError"]},"optional":true}]}},"words":{"pending":"pending","running":"running","sleeping":"sleeping","waiting":"waiting","succeeded":"success","answered":"received","failed":"failed","failedWith":{"TEMPLATE_ERROR":"template_error","TIMEOUT":"timeout","WAIT_TIMEOUT":"timeout"},"skipped":"skipped"}},"language":"paths","templates":{"strict":true,"nullText":"","loops":false,"functions":false,"places":[{"action":"http.request","parameter":"/url","takes":"url"},{"action":"http.request","parameter":"/headers","takes":"text"}]}}}',1794943016645461);
INSERT INTO workflow_plans VALUES(X'01a1eaf0def2760ea2e8823207b1d3d2',1,'delay','{"v":1,"plan":{"workflow":"delay","displayName":"D","dialect":"dataworkflows","nodes":[{"id":"d","kind":{"type":"sleep","action":"core.delay","parameters":{"durationMs":60000}},"join":"any","route":"parallel","policies":{"timeoutMs":300000,"retry":{"maxAttempts":4,"baseDelayMs":2000,"backoffFactor":2.0,"jitter":true},"rerenderOnRetry":false},"edges":[]}],"onFailure":"failFast","timeoutMs":3153600000000,"context":{"mode":"SummaryOnly","keysToInclude":[],"maxContextSizeBytes":10485760,"overflowBehavior":"Fail"},"scope":{"names":[{"path":["trigger"],"source":"trigger"},{"path":["context","data"],"source":"entries"},{"path":["vars"],"source":"vars"},{"path":["spec"],"source":"spec"},{"path":["wait"],"source":"waits"}],"entries":{"succeeded":{"output":[]},"answered":{"output":[]},"failed":{"object":[{"name":"error","form":{"object":[{"name":"code","form":"errorCode"},{"name":"message","form":"errorMessage"}]}},{"name":"errorNode","form":"node"},{"name":"status","form":"status"}]}},"words":{"pending":"pending","running":"running","sleeping":"sleeping","waiting":"waiting","succeeded":"succeeded","answered":"succeeded","failed":"failed","skipped":"skipped"}},"language":"script","templates":{"strict":true,"nullText":"","loops":false,"functions":false}}}',1794943016701258);
INSERT INTO workflow_plans VALUES(X'01a1eaf0df107562bfdd572ff4cab100',1,'parent','{"v":1,"plan":{"workflow":"parent","displayName":"P","dialect":"dataworkflows","nodes":[{"id":"call","kind":{"type":"request","action":"core.subworkflow","parameters":{"workflowId":"ask","trigger":{"n":4}},"answer":{"type":"child"},"timeoutCode":"TIMEOUT"},"join":"any","route":"parallel","policies":{"timeoutMs":300000,"retry":{"maxAttempts":1,"baseDelayMs":2000,"backoffFactor":2.0,"jitter":true},"rerenderOnRetry":false},"edges":[]}],"onFailure":"failFast","timeoutMs":3153600000000,"context":{"mode":"SummaryOnly","keysToInclude":[],"maxContextSizeBytes":10485760,"overflowBehavior":"Fail"},"scope":{"names":[{"path":["trigger"],"source":"trigger"},{"path":["context","data"],"source":"entries"},{"path":["vars"],"source":"vars"},{"path":["spec"],"source":"spec"},{"path":["wait"],"source":"waits"}],"entries":{"succeeded":{"output":[]},"answered":{"output":[]},"failed":{"object":[{"name":"error","form":{"object":[{"name":"code","form":"errorCode"},{"name":"message","form":"errorMessage"}]}},{"name":"errorNode","form":"node"},{"name":"status","form":"status"}]}},"words":{"pending":"pending","running":"running","sleeping":"sleeping","waiting":"waiting","succeeded":"succeeded","answered":"succeeded","failed":"failed","skipped":"skipped"}},"language":"script","templates":{"strict":true,"nullText":"","loops":false,"functions":false}}}',1794943016732786);
INSERT INTO workflow_plans VALUES(X'01a1eaf0df32741b89e6c09f0ca72935',1,'approve','{"v":1,"plan":{"workflow":"approve","displayName":"A","dialect":"dataworkflows","nodes":[{"id":"ok","kind":{"type":"request","action":"core.approval","parameters":{"title":"May it go on?","outcomes":["yes","no"]},"answer":{"type":"approval","outcomes":["yes","no"]},"timeoutCode":"WAIT_TIMEOUT"},"join":"any","route":"parallel","policies":{"timeoutMs":300000,"retry":{"maxAttempts":4,"baseDelayMs":2000,"backoffFactor":2.0,"jitter":true},"rerenderOnRetry":false},"edges":[]}],"onFailure":"failFast","timeoutMs":3153600000000,"context":{"mode":"SummaryOnly","keysToInclude":[],"maxContextSizeBytes":10485760,"overflowBehavior":"Fail"},"scope":{"names":[{"path":["trigger"],"source":"trigger"},{"path":["context","data"],"source":"entries"},{"path":["vars"],"source":"vars"},{"path":["spec"],"source":"spec"},{"path":["wait"],"source":"waits"}],"entries":{"succeeded":{"output":[]},"answered":{"output":[]},"failed":{"object":[{"name":"error","form":{"object":[{"name":"code","form":"errorCode"},{"name":"message","form":"errorMessage"}]}},{"name":"errorNode","form":"node"},{"name":"status","form":"status"}]}},"words":{"pending":"pending","running":"running","sleeping":"sleeping","waiting":"waiting","succeeded":"succeeded","answered":"succeeded","failed":"failed","skipped":"skipped"}},"language":"script","templates":{"strict":true,"nullText":"","loops":false,"functions":false}}}',1794943016764811);
INSERT INTO workflow_plans VALUES(X'01a1eaf0df50745292b80161eb1010db',1,'echo','{"v":1,"plan":{"workflow":"echo","displayName":"E","dialect":"dataworkflows","nodes":[{"id":"a","kind":{"type":"action","action":"core.echo","parameters":{"text":"hi"}},"join":"any","route":"parallel","policies":{"timeoutMs":300000,"retry":{"maxAttempts":4,"baseDelayMs":2000,"backoffFactor":2.0,"jitter":true},"rerenderOnRetry":false},"edges":[]}],"onFailure":"failFast","timeoutMs":3600000,"context":{"mode":"SummaryOnly","keysToInclude":[],"maxContextSizeBytes":10485760,"overflowBehavior":"Fail"},"scope":{"names":[{"path":["trigger"],"source":"trigger"},{"path":["context","data"],"source":"entries"},{"path":["vars"],"source":"vars"},{"path":["spec"],"source":"spec"},{"path":["wait"],"source":"waits"}],"entries":{"succeeded":{"output":[]},"answered":{"output":[]},"failed":{"object":[{"name":"error","form":{"object":[{"name":"code","form":"errorCode"},{"name":"message","form":"errorMessage"}]}},{"name":"errorNode","form":"node"},{"name":"status","form":"status"}]}},"words":{"pending":"pending","running":"running","sleeping":"sleeping","waiting":"waiting","succeeded":"succeeded","answered":"succeeded","failed":"failed","skipped":"skipped"}},"language":"script","templates":{"strict":true,"nullText":"","loops":false,"functions":false}}}',1794943016799474);
CREATE TABLE registered_callbacks (
  id            TEXT    NOT NULL PRIMARY KEY,
  service_name  TEXT    NOT NULL,
  environment   TEXT    NOT NULL,
  base_url      TEXT    NOT NULL,
  path          TEXT    NOT NULL,
  registered_at INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO registered_callbacks VALUES('charge','billing','test','https://billing.example','/charge',1794943016657614);
CREATE INDEX ix_links_execution ON workflow_resource_links (workflow_execution_id, created_at);
CREATE INDEX ix_waits_execution ON run_waits (workflow_execution_id, node_id);
CREATE UNIQUE INDEX ux_workflows_id ON workflows (id) WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX ux_executions_request ON workflow_executions (tenant_id, workflow_request_id);
CREATE INDEX ix_executions_workflow ON workflow_executions (workflow_uid, id);
CREATE INDEX ix_executions_claim ON workflow_executions (lease_owner, wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX ix_executions_status ON workflow_executions (status, id) WHERE status <> 'Succeeded';
CREATE INDEX ix_executions_tenant ON workflow_executions (tenant_id, id) WHERE tenant_id <> '';
CREATE INDEX ix_executions_parent ON workflow_executions (parent_execution_id, id)
  WHERE parent_execution_id IS NOT NULL;
CREATE INDEX ix_executions_correlation ON workflow_executions (correlation_id, id)
  WHERE correlation_id IS NOT NULL;
CREATE INDEX ix_executions_priority ON workflow_executions (workflow_uid, priority, wake_at)
  WHERE lease_owner IS NULL AND wake_at IS NOT NULL AND priority <> 0;
CREATE INDEX ix_executions_unread ON workflow_executions (lease_owner, id)
  WHERE lease_owner IS NOT NULL AND inbox_seq > inbox_seen;
CREATE INDEX ix_executions_group ON workflow_executions (tenant_id, workflow_uid, wake_at)
  WHERE lease_owner IS NULL AND wake_at IS NOT NULL;
CREATE INDEX ix_dead_letters_reason ON dead_letters (reason, id);
CREATE INDEX ix_dead_letters_workflow ON dead_letters (workflow_uid, id);
CREATE UNIQUE INDEX ux_inbox_item ON run_waits (item_id) WHERE item_id IS NOT NULL;
CREATE INDEX ix_inbox_pending ON run_waits (item_id) WHERE item_id IS NOT NULL AND is_open;
CREATE INDEX ix_inbox_tenant ON run_waits (tenant_id, item_id) WHERE item_id IS NOT NULL AND is_open;
CREATE INDEX ix_inbox_queue ON run_waits (queue, item_id) WHERE item_id IS NOT NULL AND is_open;
CREATE INDEX ix_inbox_claim ON run_waits (queue, lease_until, item_id) WHERE item_id IS NOT NULL AND is_open;
CREATE INDEX ix_inbox_claim_tenant ON run_waits (queue, tenant_id, lease_until, item_id)
  WHERE item_id IS NOT NULL AND is_open;
CREATE INDEX ix_executions_ended_children ON workflow_executions (parent_execution_id, id)
  WHERE parent_waits AND end_time IS NOT NULL;
CREATE VIEW workflow_execution_hierarchy AS
  SELECT parent_execution_id, id AS child_execution_id, parent_node_id, created_at
  FROM workflow_executions WHERE parent_execution_id IS NOT NULL;
COMMIT;
