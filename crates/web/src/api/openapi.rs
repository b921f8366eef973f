//! Makes `docs/openapi.json`, the OpenAPI document, from the types of requests and responses and the table of
//! [`operations`]. The server sends the file as it is, so it needs this module only in tests.
//!
//! What must stay true: the file is what this module makes (`UPDATE_DOCS=1 cargo test -p fermata-web openapi` writes it), and
//! every route is in it. `tests/api/openapi.rs` sends its examples to a server.

mod operations;

use super::scopes::scope_of;
use axum::http::Method;
use operations::operations;
use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// What a route does, takes and returns.
struct Operation {
    method: Method,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    query: Option<Make>,
    headers: Vec<(&'static str, &'static str)>,
    body: Option<Body>,
    answers: Vec<(u16, Answer)>,
    /// Examples of parameters in the query and in the path.
    values: Vec<(&'static str, Value)>,
}

/// Adds a type to the components and returns its schema.
type Make = fn(&mut SchemaGenerator) -> Schema;

#[derive(Clone, Copy)]
enum Answer {
    Empty,
    Json(Make),
    Text,
    Events,
}

enum Body {
    /// JSON of this type, and an example.
    Json(Make, Value),
    /// A workflow document.
    Document(Value),
}

fn op(method: Method, path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation {
        method,
        path,
        id,
        summary,
        query: None,
        headers: Vec::new(),
        body: None,
        answers: Vec::new(),
        values: Vec::new(),
    }
}

impl Operation {
    fn query<T: JsonSchema>(mut self) -> Operation {
        self.query = Some(|schemas| schemas.root_schema_for::<T>());
        self
    }

    fn value(mut self, name: &'static str, example: impl Into<Value>) -> Operation {
        self.values.push((name, example.into()));
        self
    }

    fn header(mut self, name: &'static str, description: &'static str) -> Operation {
        self.headers.push((name, description));
        self
    }

    fn body<T: JsonSchema>(mut self, example: Value) -> Operation {
        self.body = Some(Body::Json(SchemaGenerator::subschema_for::<T>, example));
        self
    }

    fn document(mut self, example: Value) -> Operation {
        self.body = Some(Body::Document(example));
        self
    }

    fn answer<T: JsonSchema>(mut self, status: u16) -> Operation {
        self.answers
            .push((status, Answer::Json(SchemaGenerator::subschema_for::<T>)));
        self
    }

    fn empty(mut self, status: u16) -> Operation {
        self.answers.push((status, Answer::Empty));
        self
    }

    /// A stream of server-sent events.
    fn events(mut self, status: u16) -> Operation {
        self.answers.push((status, Answer::Events));
        self
    }

    fn text(mut self, status: u16) -> Operation {
        self.answers.push((status, Answer::Text));
        self
    }
}

/// Parameters in paths: where the path begins with this, the name, what it is, and an example.
const PATH_PARAMETERS: &[(&str, &str, &str, &str)] = &[
    (
        "/api/v1/workflows/",
        "id",
        "The id of the workflow, or its UUID with or without `wf_`",
        "hello",
    ),
    ("/api/v1/workflows/", "node", "The id of the node", "greet"),
    ("/api/v1/workflows/", "version", "The number of the version", "1"),
    (
        "/api/v1/workflows/",
        "run_id",
        "The id of the run, with or without `run_`",
        EXAMPLE_ID,
    ),
    ("/api/v1/executions/", "id", "The id of the execution", EXAMPLE_ID),
    ("/api/v1/executions/", "node", "The id of the node", "ask"),
    ("/api/v1/inbox/", "id", "The id of the item", EXAMPLE_ID),
    ("/api/v1/bulk/", "id", "The id of the job", EXAMPLE_ID),
    (
        "/api/v1/triggers/",
        "trigger",
        "The id of the trigger; of a webhook, the last segment of its URL",
        EXAMPLE_ID,
    ),
    ("/api/v1/triggers/", "delivery", "The id of the delivery", EXAMPLE_ID),
    ("/api/v1/callbacks/", "id", "The id of the callback", "score-order"),
    ("/api/v1/admin/", "id", "The id", EXAMPLE_ID),
    (
        "/wh/",
        "token",
        "The token of the callback, from its URL",
        "2f9d10aaffc449218f5c",
    ),
];

const EXAMPLE_ID: &str = "0199a7c2-7c1e-7d3a-9a52-0d8a1c2b3e4f";

fn parameters(operation: &Operation, schemas: &mut SchemaGenerator) -> Vec<Value> {
    let mut all = Vec::new();
    for part in operation.path.split('/') {
        let Some(name) = part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) else {
            continue;
        };
        let known = PATH_PARAMETERS
            .iter()
            .find(|(prefix, of, ..)| operation.path.starts_with(prefix) && *of == name);
        let (_, _, description, usual) = known.unwrap_or_else(|| panic!("{}: `{name}` is unknown", operation.path));
        let own = operation.values.iter().find(|(of, _)| *of == name);
        let example = own.map_or_else(|| json!(usual), |(_, example)| example.clone());
        all.push(
            json!({ "name": name, "in": "path", "required": true, "description": description,
            "schema": { "type": "string" }, "example": example }),
        );
    }
    if let Some(make) = operation.query {
        let schema = make(schemas).to_value();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let mut property = property.clone();
            let description = property
                .as_object_mut()
                .and_then(|members| members.remove("description"));
            let mut parameter = json!({ "name": name, "in": "query", "required": required.contains(&json!(name)),
                "schema": not_null(property) });
            let example = operation.values.iter().find(|(of, _)| of == name);
            let members = parameter.as_object_mut().expect("an object");
            members.extend(description.map(|text| ("description".to_owned(), text)));
            members.extend(example.map(|(_, example)| ("example".to_owned(), example.clone())));
            all.push(parameter);
        }
    }
    for (name, description) in &operation.headers {
        all.push(
            json!({ "name": name, "in": "header", "required": false, "description": description,
            "schema": { "type": "string" } }),
        );
    }
    all
}

/// The schema of a parameter that can be left out: it is never null.
fn not_null(mut schema: Value) -> Value {
    if let Some(types) = schema.get_mut("type").filter(|types| types.is_array()) {
        let first = types[0].clone();
        *types = first;
    }
    if let Some(members) = schema.as_object_mut() {
        members.retain(|name, value| name != "default" || !value.is_null());
    }
    schema
}

fn responses(operation: &Operation, schemas: &mut SchemaGenerator) -> Value {
    let mut all = Map::new();
    for (status, content) in &operation.answers {
        let description = match status {
            201 => "Created",
            202 => "Accepted",
            204 => "Done; there is no body",
            _ => "OK",
        };
        let mut answer = json!({ "description": description });
        match content {
            Answer::Empty => {}
            Answer::Json(make) => answer["content"] = json!({ "application/json": { "schema": make(schemas) } }),
            Answer::Events => answer["content"] = json!({ "text/event-stream": { "schema": { "type": "string" } } }),
            Answer::Text => answer["content"] = json!({ "text/plain": { "schema": { "type": "string" } } }),
        }
        all.insert(status.to_string(), answer);
    }
    all.insert("default".to_owned(), json!({ "$ref": "#/components/responses/Error" }));
    Value::Object(all)
}

fn body(body: &Body, schemas: &mut SchemaGenerator) -> Value {
    match body {
        Body::Json(make, example) => json!({ "content": {
            "application/json": { "schema": make(schemas), "example": example } } }),
        Body::Document(example) => json!({ "required": true, "content": {
            "application/json": { "schema": { "type": "object", "description": "A workflow document of any dialect" }, "example": example },
            "application/yaml": { "schema": { "type": "string", "description": "The same as YAML" } } } }),
    }
}

/// The section of the API that a path belongs to.
fn tag(path: &str) -> &'static str {
    match path.split('/').nth(3).unwrap_or_default() {
        "workflows" if path.contains("/runs") || path.ends_with("/trigger") => "Runs",
        "workflows" if path.ends_with("/execute") => "Executions",
        "workflows" => "Workflows",
        "analysis" => "Analysis",
        "executions" => "Executions",
        "inbox" => "Inbox",
        "callbacks" => "Callbacks",
        "runners" | "admin" | "audit" => "Operations",
        _ if path == "/metrics" => "Operations",
        "triggers" | "events" => "Triggers",
        _ if path.starts_with("/wh/") => "Callbacks",
        _ => "Health",
    }
}

const SECTIONS: [(&str, &str); 9] = [
    ("Workflows", "Create, check, publish and change workflows"),
    ("Executions", "Start, read and cancel executions"),
    ("Runs", "The same executions in the format of Runlater"),
    ("Inbox", "Requests that wait for a person or a worker"),
    ("Callbacks", "Complete a wait, and register the addresses of services"),
    ("Triggers", "What starts executions"),
    ("Analysis", "Look at a document without storing it"),
    ("Operations", "Runners, dead letters, keys, audit and metrics"),
    ("Health", "Whether the server is alive and ready"),
];

fn document() -> Value {
    let settings = |settings: SchemaSettings| {
        settings.with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        })
    };
    let mut sent = settings(SchemaSettings::draft2020_12())
        .for_deserialize()
        .into_generator();
    let mut returned = settings(SchemaSettings::draft2020_12())
        .for_serialize()
        .into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations() {
        let scope = scope_of(&operation.method, operation.path);
        let mut entry = json!({
            "operationId": operation.id,
            "tags": [tag(operation.path)],
            "summary": operation.summary,
            "parameters": parameters(&operation, &mut sent),
        });
        match scope {
            Some(scope) => {
                entry["description"] = json!(format!("Needs the scope `{}`.", scope.as_str()));
                entry["security"] = json!([{ "token": [] }]);
            }
            None => entry["security"] = json!([]),
        }
        if let Some(taken) = &operation.body {
            entry["requestBody"] = body(taken, &mut sent);
        }
        entry["responses"] = responses(&operation, &mut returned);
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method.as_str().to_lowercase()] = entry;
    }
    let mut schemas = Map::new();
    for (name, schema) in sent
        .take_definitions(true)
        .into_iter()
        .chain(returned.take_definitions(true))
    {
        schemas.insert(name, schema);
    }
    schemas.sort_keys();
    let tags = SECTIONS.map(|(name, description)| json!({ "name": name, "description": description }));
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Fermata",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The HTTP API of Fermata, a durable workflow engine. docs/api.md describes it in words, with all error codes.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "tags": tags,
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer", "description": "An API key or a JWT. A server on a loopback address accepts requests without one." } },
            "responses": { "Error": { "description": "An error. A request that gets a 4xx has changed nothing.",
                "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } } } },
            "schemas": schemas,
        },
    });
    without_view(with_error(document))
}

/// Adds the envelope of errors, which is written by hand: details are of several kinds.
fn with_error(mut document: Value) -> Value {
    document["components"]["schemas"]["Error"] = json!({
        "type": "object",
        "required": ["error"],
        "properties": { "error": {
            "type": "object",
            "required": ["code", "message", "correlationId", "timestamp"],
            "properties": {
                "code": { "type": "string", "description": "A stable name; docs/api.md lists all" },
                "message": { "type": "string" },
                "correlationId": { "type": "string" },
                "timestamp": { "type": "string", "format": "date-time" },
                "details": { "type": "array", "items": { "type": "object" } },
            },
        } },
    });
    document
}

/// The types are called `WorkflowView` in the program and `Workflow` in the document.
fn without_view(document: Value) -> Value {
    let mut text = document.to_string();
    let names: Vec<String> = match document["components"]["schemas"].as_object() {
        Some(schemas) => schemas.keys().filter(|name| name.ends_with("View")).cloned().collect(),
        None => Vec::new(),
    };
    for name in names {
        let short = name.trim_end_matches("View");
        text = text.replace(&format!("\"{name}\":"), &format!("\"{short}\":"));
        text = text.replace(&format!("schemas/{name}\""), &format!("schemas/{short}\""));
    }
    serde_json::from_str(&text).expect("names have no quotes")
}

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");

#[test]
fn the_openapi_document_is_up_to_date() {
    let made = format!("{:#}\n", document());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(FILE, &made).unwrap();
    }
    let stored = std::fs::read_to_string(FILE).unwrap();
    let help = "docs/openapi.json differs from the types; if the change is intended, write it with UPDATE_DOCS=1";
    assert!(stored == made, "{help}");
}

#[test]
fn every_route_is_in_the_openapi_document() {
    // A workflow may be named `validate` or `dry-run`; these routes are those of `/workflows/{id}`. The pages describe themselves.
    let names = ["/api/v1/workflows/validate", "/api/v1/workflows/dry-run"];
    let is_described = |(method, path): &(String, String)| {
        (!names.contains(&path.as_str()) || method == "POST")
            && ["/api/", "/wh/", "/health/", "/metrics"]
                .iter()
                .any(|begin| path.starts_with(begin))
    };
    let mut routes: Vec<_> = super::scopes::routes().into_iter().filter(is_described).collect();
    let mut described: Vec<_> = operations()
        .iter()
        .map(|operation| (operation.method.to_string(), operation.path.to_owned()))
        .collect();
    routes.sort();
    described.sort();
    assert_eq!(described, routes, "the routes and the table of operations differ");
    let mut ids: Vec<_> = operations().iter().map(|operation| operation.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), operations().len(), "an operationId is used twice");
}
