//! Templates: values, text, refusals, limits and reads.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Options, Place, Syntax, Template, ValueTemplate};
use crate::{Data, EvalError, EvalErrorKind, SyntaxKind};

fn data() -> (Value, Value) {
    (
        json!({
            "channelId": "C1", "user": null, "count": 3, "big": 18446744073709551615u64,
            "items": [{"Name": "A"}, {"Name": "B"}], "key": "user-name", "user-name": "Ada",
            "obj": {"a": 1, "length": "own"}, "flag": false, "text": "é😀", "float": 1.0,
        }),
        json!({ "items": [1, 2], "errorNode": null }),
    )
}

fn render_with(source: &str, options: &Options) -> Result<Value, EvalError> {
    let (trigger, fetch) = data();
    let scope = Data::object([
        ("trigger", Data::Json(&trigger)),
        (
            "context",
            Data::object([("data", Data::object([("fetch-items", Data::Json(&fetch))]))]),
        ),
    ]);
    Template::parse(source, options)
        .unwrap_or_else(|error| panic!("{source}: {error}"))
        .render(&scope, options)
}

fn everything() -> Options {
    Options {
        loops: true,
        functions: true,
        ..Options::default()
    }
}

#[test]
fn one_expression_is_typed_and_longer_text_is_text() {
    let table = [
        ("{{ trigger.items }}", json!([{"Name": "A"}, {"Name": "B"}])),
        ("{{trigger.count}}", json!(3)),
        ("{{- trigger.big -}}", json!(18446744073709551615u64)),
        ("{{ trigger.float }}", json!(1.0)),
        ("{{ trigger.user }}", json!(null)),
        ("{{ context.data['fetch-items'].items.length }}", json!(2)),
        (
            "{{ context.data }}",
            json!({"fetch-items": {"items": [1, 2], "errorNode": null}}),
        ),
        (" {{ trigger.count }}", json!(" 3")),
        (
            "Found {{ context.data['fetch-items'].items.size }} items.",
            json!("Found 2 items."),
        ),
        ("{{ trigger.items }}!", json!("[{\"Name\":\"A\"},{\"Name\":\"B\"}]!")),
        (
            "{{ trigger.user }}|{{ trigger.flag }}|{{ trigger.float }}",
            json!("|false|1.0"),
        ),
        ("{{ trigger.text.length }}", json!(3)),
        ("{{ trigger.obj.length }}", json!("own")),
        ("{{ trigger[trigger.key] }}", json!("Ada")),
        ("{{ trigger.items[1].Name }}{{ trigger.count }}", json!("B3")),
        (
            "at {{ context.data['fetch-items'].errorNode ?? 'unknown' }}.",
            json!("at unknown."),
        ),
        ("{{ trigger.nope.deeper ?? trigger.user ?? 5 }}", json!(5)),
        ("{{ (trigger.nope ?? trigger.obj).a }}", json!(1)),
        ("{{ 'a}}b' }}", json!("a}}b")),
        ("{{ -1.50 }}", serde_json::from_str("-1.50").unwrap()),
        ("{%{ {{ raw }} }%}", json!(" {{ raw }} ")),
        ("{%%{ }%} }%%}x", json!(" }%} x")),
        ("a { b } {", json!("a { b } {")),
        ("ünï {{ true }} ö", json!("ünï true ö")),
        ("a \n {{- 'x' -}} \n b", json!("axb")),
        ("a \n  {{~ 'x' ~}}  \n  b", json!("a \nx  b")),
        ("", json!("")),
    ];
    for (source, expected) in table {
        let value = render_with(source, &Options::default());
        assert_eq!(value, Ok(expected), "{source}");
    }
}

#[test]
fn an_undefined_path_is_named_with_the_members_that_exist() {
    let table = [
        (
            "x {{ trigger.boardId }}",
            "`trigger.boardId` is not defined (trigger has: channelId, user, count, big, items, key, user-name, obj, …)",
            5,
        ),
        (
            "{{ trigger.chanelId }}",
            "`trigger.chanelId` is not defined (trigger has: channelId, user, count, big, items, key, user-name, obj, …; did you mean `channelId`?)",
            3,
        ),
        (
            "{{ context.data['fetch_items'].items[0] }}",
            "`context.data['fetch_items'].items[0]` is not defined: `context.data.fetch_items` is missing (context.data has: fetch-items; did you mean `fetch-items`?)",
            3,
        ),
        (
            "{{ trigger.user.name }}",
            "`trigger.user.name` is not defined: `trigger.user` is null",
            3,
        ),
        (
            "{{ trigger.items[5].Name }}",
            "`trigger.items[5].Name` is not defined: `trigger.items` has 2 element(s)",
            3,
        ),
        (
            "{{ spec.x }}",
            "`spec.x` is not defined (the scope has: context, trigger)",
            3,
        ),
        (
            "{{ trigger.a ?? trigger.obj.b }}",
            "`trigger.obj.b` is not defined (trigger.obj has: a, length)",
            16,
        ),
    ];
    for (source, message, offset) in table {
        let error = render_with(source, &Options::default()).expect_err(source);
        assert_eq!(error.kind, EvalErrorKind::Undefined);
        assert_eq!((error.message.as_str(), error.offset), (message, offset));
    }
    let lenient = Options {
        strict: false,
        null_text: "-".into(),
        ..Options::default()
    };
    assert_eq!(render_with("{{ a.b }}", &lenient), Ok(json!(null)));
    assert_eq!(render_with("x{{ a.b }}", &lenient), Ok(json!("x-")));
}

#[test]
fn blocks_and_functions_where_enabled() {
    let table = [
        ("{{ for i in trigger.items }}{{ i.Name }},{{ end }}", "A,B,"),
        (
            "{{ if trigger.count > 2 && !trigger.flag }}yes{{ else }}no{{ end }}",
            "yes",
        ),
        (
            "{{ if trigger.flag }}a{{ else if trigger.count == 3 }}b{{ else }}c{{ end }}",
            "b",
        ),
        ("{{ if trigger.user }}a{{ end }}z", "z"),
        ("{{ 'aBc' | string.upcase | string.downcase }}!", "abc!"),
        ("{{ string.capitalize 'abc' }}{{ ' x ' | string.strip }}", "Abcx"),
        ("{{ context.data['fetch-items'].items | array.join '-' }}.", "1-2."),
        (
            "{{ trigger.items | array.size }}{{ (trigger.items | array.first).Name }}",
            "2A",
        ),
        (
            "{{ trigger.obj | json }}{{ object.to_json trigger.obj.a }}",
            "{\"a\":1,\"length\":\"own\"}1",
        ),
        (
            "{{ for i in trigger.items }}{{ for j in trigger.items }}{{ i.Name }}{{ j.Name }} {{ end }}{{ end }}",
            "AA AB BA BB ",
        ),
        ("{{ if trigger.count <= 3 || trigger.nope }}y{{ end }}", "y"),
        ("{{ if 1 == 1.0 }}y{{ end }}{{ if 'a' < 'b' }}z{{ end }}", "yz"),
    ];
    for (source, expected) in table {
        assert_eq!(render_with(source, &everything()), Ok(json!(expected)), "{source}");
    }
    for source in [
        "{{ if a }}{{ end }}",
        "{{ for a in b }}{{ end }}",
        "{{ a | string.upcase }}",
        "{{ a == b }}",
        "{{ !a }}",
        "{{ json a }}",
    ] {
        let error = Template::parse(source, &Options::default()).expect_err(source);
        assert_eq!(error.kind, SyntaxKind::NotCovered);
        assert!(error.message.contains("in the configuration enables"), "{error}");
    }
    let template = Template::parse("{{ if true }}{{ end }}", &everything()).unwrap();
    let error = template.render(&Data::object([]), &Options::default()).unwrap_err();
    assert_eq!(error.kind, EvalErrorKind::Disabled);
}

#[test]
fn syntax_errors_have_a_position() {
    let table = [
        ("x {{ a", "`}}` is missing", 2),
        ("{{ }}", "expected an expression", 3),
        ("{{ a. }}", "expected a name after `.`", 6),
        ("{{ a = 1 }}", "assignments are not supported", 5),
        ("{{ a + 1 }}", "arithmetic is not supported", 5),
        ("{{ a-b }}", "arithmetic is not supported", 4),
        ("{{ include 'x' }}", "`include` is not supported", 3),
        ("{{ import x }}", "`import` is not supported", 3),
        ("{{ func f }}", "custom functions", 3),
        ("{{ capture x }}", "`capture` here", 3),
        ("{{ with x }}", "`with` here", 3),
        ("{{ {a: 1} }}", "objects are not supported", 3),
        ("{{ foo bar }}", "functions of this name", 7),
        ("{{ 'abc }}", "' is missing", 3),
        ("{{ end }}", "without an `if` or `for`", 0),
        ("{{ if a }}", "`end` is missing", 0),
        ("{{ if a }}{{ else }}{{ else }}{{ end }}", "a second `else`", 20),
        ("{{ a[-1] }}", "whole number", 5),
        ("{{ $x }}", "`$` is not supported", 3),
        ("{{ a ?? }}", "expected an expression", 8),
    ];
    for (source, what, offset) in table {
        let error = Template::parse(source, &everything()).expect_err(source);
        assert!(error.message.contains(what), "{source}: {error}");
        assert_eq!(error.offset, offset, "{source}: {error}");
    }
    let deep = format!("{{{{ {}a{} }}}}", "(".repeat(5000), ")".repeat(5000));
    assert!(Template::parse(&deep, &everything()).is_err());
    let blocks = "{{ if a }}".repeat(5000) + &"{{ end }}".repeat(5000);
    assert!(Template::parse(&blocks, &everything()).is_err());
}

fn paths() -> Options {
    Options {
        syntax: Syntax::Paths,
        ..Options::default()
    }
}

#[test]
fn plain_paths_are_values_or_text() {
    let table = [
        ("{{trigger.user-name}}", json!("Ada")),
        ("{{ trigger.user-name }}", json!("Ada")),
        ("{{trigger.items.1.Name}}!", json!("B!")),
        ("{{trigger.items}}", json!([{"Name": "A"}, {"Name": "B"}])),
        ("{{trigger.big}}", json!(18446744073709551615u64)),
        ("{{trigger.user}}", json!(null)),
        ("{{trigger.obj.length}}", json!("own")),
        ("{{context.data.fetch-items.items.0}}", json!(1)),
        ("is {{trigger.obj}}", json!("is {\"a\":1,\"length\":\"own\"}")),
        (
            "{{trigger.flag}}, {{trigger.items}}",
            json!("false, [{\"Name\":\"A\"},{\"Name\":\"B\"}]"),
        ),
        ("{%{ a }%} } }} { {", json!("{%{ a }%} } }} { {")),
        ("ü{{\ttrigger.count\n}}ö", json!("ü3ö")),
        ("", json!("")),
    ];
    for (source, expected) in table {
        assert_eq!(render_with(source, &paths()), Ok(expected), "{source}");
    }
}

#[test]
fn a_plain_path_that_does_not_resolve_fails_with_the_reason() {
    let lenient = Options {
        strict: false,
        null_text: "-".into(),
        ..paths()
    };
    let table = [
        (
            "{{ tasks.charge.body.order_id }}",
            "tasks.charge.body.order_id",
            3,
            "there is no `tasks` (the scope has: context, trigger)",
        ),
        (
            "to {{trigger.chanelId}}",
            "trigger.chanelId",
            5,
            "there is no `chanelId` (trigger has: channelId, user, count, big, items, key, user-name, obj, …; did you mean `channelId`?)",
        ),
        (
            "{{trigger.items.2}}",
            "trigger.items.2",
            2,
            "`trigger.items` has 2 element(s)",
        ),
        (
            "{{trigger.items.length}}",
            "trigger.items.length",
            2,
            "`trigger.items` is an array",
        ),
        (
            "{{trigger.user.name}}",
            "trigger.user.name",
            2,
            "`trigger.user` is null",
        ),
        (
            "{{trigger.items.01}}",
            "trigger.items.01",
            2,
            "`trigger.items` is an array",
        ),
        (
            "{{trigger.count}} {{ trigger.user }}",
            "trigger.user",
            21,
            "its value is null, which cannot be written into text",
        ),
    ];
    for (source, path, offset, why) in table {
        for options in [paths(), lenient.clone()] {
            let error = render_with(source, &options).expect_err(source);
            assert_eq!(error.kind, EvalErrorKind::Undefined);
            assert_eq!(error.message, format!("Failed to resolve {{{{{path}}}}}: {why}"));
            assert_eq!((error.offset, error.length), (offset, path.len()), "{source}");
        }
    }
}

#[test]
fn anything_but_a_plain_path_is_refused() {
    let table = [
        ("x {{ a", "`}}` is missing", 2, 2),
        ("{{ }}", "the path is missing; a template is one path between", 3, 2),
        ("{{a ?? 'b'}}", "unexpected `??`; a template is one path", 4, 2),
        ("{{a | upcase}}", "pipes are not supported", 4, 1),
        ("{{a[0]}}", "an element as `items.0`", 3, 1),
        ("{{a['}}']}}", "' is missing", 4, 1),
        ("{{'a'}}", "unexpected string", 2, 1),
        ("{{a == 1}}", "unexpected `==`", 4, 2),
        ("{{f(a)}}", "functions are not supported", 3, 1),
        ("{{a b}}", "unexpected `b`", 4, 1),
        ("{{- a -}}", "unexpected `a`", 4, 1),
        ("{{~a}}", "unexpected `~`", 2, 1),
        ("{{{a}}}", "unexpected `{`", 2, 1),
        ("{{a.}}", "a name in a path has", 4, 0),
        ("{{.a}}", "a name in a path has", 2, 1),
        ("{{a€}}", "unexpected `€`", 3, 3),
    ];
    for (source, what, offset, length) in table {
        let error = Template::parse(source, &paths()).expect_err(source);
        assert!(error.message.contains(what), "{source}: {error}");
        assert_eq!((error.offset, error.length), (offset, length), "{source}: {error}");
    }
    let template = Template::parse("{{b.c-d}} {{a.0.x}} {{b.c-d}}", &paths()).unwrap();
    let reads: Vec<String> = template.reads().iter().map(ToString::to_string).collect();
    assert_eq!(reads, ["a[0].x", "b['c-d']"]);
}

#[test]
fn output_is_limited() {
    let options = Options {
        max_output_bytes: 30,
        ..everything()
    };
    let long = "{{ for i in trigger.items }}0123456789ABCDEF{{ end }}";
    for source in [long, "{{ trigger }}", "x{{ trigger }}", "{{ trigger | json }}"] {
        let error = render_with(source, &options).expect_err(source);
        assert_eq!(error.kind, EvalErrorKind::OutputLimit, "{source}");
    }
    assert!(render_with("{{ trigger.items }}", &options).is_ok());
}

#[test]
fn all_strings_of_a_value_are_templates() {
    let options = Options::default();
    let value = json!({
        "board/id": "{{ trigger.channelId }}", "n": 1, "{{ key }}": "plain",
        "list": ["{{ trigger.items }}", "a{{ trigger.count }}", "{%{{{x}}}%}"],
    });
    let template = ValueTemplate::parse(&value, &options).unwrap();
    let (trigger, _) = data();
    let scope = Data::object([("trigger", Data::Json(&trigger))]);
    assert_eq!(
        template.render(&scope, &options).map(|rendered| rendered.value),
        Ok(json!({
            "board/id": "C1", "n": 1, "{{ key }}": "plain",
            "list": [[{"Name": "A"}, {"Name": "B"}], "a3", "{{x}}"],
        }))
    );
    assert!(!template.is_literal());
    let reads: Vec<String> = template.reads().iter().map(ToString::to_string).collect();
    assert_eq!(reads, ["trigger.channelId", "trigger.count", "trigger.items"]);
    let (pointer, error) = template.render(&Data::object([]), &options).unwrap_err();
    assert_eq!((pointer.as_str(), error.kind), ("/board~1id", EvalErrorKind::Undefined));
    let wrong = json!({ "a": "{{ }}", "b": ["{{"] });
    let errors = ValueTemplate::parse(&wrong, &options).unwrap_err();
    let pointers: Vec<&str> = errors.iter().map(|(pointer, _)| pointer.as_str()).collect();
    assert_eq!(pointers, ["/a", "/b/0"]);
    assert!(
        ValueTemplate::parse(&json!({"a": [1, "x"]}), &options)
            .unwrap()
            .is_literal()
    );
}

#[test]
fn reads_are_complete() {
    let source = "{{ for i in a.list }}{{ i.x }}{{ b[c.d].e }}{{ end }}{{ (f ?? g.h).k }}{{ m[0]['n-o'] }}";
    let template = Template::parse(source, &everything()).unwrap();
    let reads: Vec<String> = template
        .reads()
        .iter()
        .map(|path| format!("{path}{}", if path.open { "*" } else { "" }))
        .collect();
    assert_eq!(reads, ["a.list*", "b*", "c.d", "f*", "g.h*", "m[0]['n-o']"]);
}

fn any_json() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        any::<String>(),
        Just("{{ trigger }}".to_owned()),
        Just("}} {{ x | y -}}{%{".to_owned())
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map(text.clone(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn parsing_never_panics(source in any::<String>()) {
        let _ = Template::parse(&source, &everything());
        let tag = format!("{{{{{source}}}}}");
        let _ = Template::parse(&tag, &everything());
        for source in [source, tag] {
            if let Err(error) = Template::parse(&source, &paths()) {
                prop_assert!(source.get(error.offset..error.offset + error.length).is_some(), "{error:?}");
            }
        }
    }

    #[test]
    fn one_expression_gives_the_identical_value(value in any_json()) {
        let scope = Data::object([("v", Data::Json(&value))]);
        for options in [Options::default(), paths()] {
            let template = Template::parse("{{ v }}", &options).unwrap();
            prop_assert_eq!(template.render(&scope, &options), Ok(value.clone()));
        }
    }

    #[test]
    fn data_is_copied_and_never_evaluated(value in any_json(), text in "[{}% a-z|]{0,20}") {
        let options = Options::default();
        let data = json!({ "value": value, "text": text });
        let scope = Data::object([("v", Data::Json(&data))]);
        let template = Template::parse("<{{ v.text }}|{{ v.value }}>", &options).unwrap();
        let written = match &value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let expected = format!("<{text}|{written}>");
        prop_assert_eq!(template.render(&scope, &options), Ok(Value::String(expected)));
    }

    #[test]
    fn output_never_exceeds_its_limit(text in any::<String>(), limit in 0usize..200) {
        let options = Options { max_output_bytes: limit, ..Options::default() };
        let data = json!([text, text]);
        let scope = Data::object([("v", Data::Json(&data))]);
        let template = Template::parse("{{ v }}{{ v[0] }}", &options).unwrap();
        match template.render(&scope, &options) {
            Ok(Value::String(out)) => prop_assert!(out.len() <= limit),
            Ok(other) => prop_assert!(false, "{other}"),
            Err(error) => prop_assert_eq!(error.kind, EvalErrorKind::OutputLimit),
        }
    }
}

/// Renders `text` as the URL or header `h` of a request.
fn at_place(text: &str, data: &Value) -> Result<Value, String> {
    let options = Options {
        syntax: Syntax::Paths,
        ..Options::default()
    };
    let places = [("/url", Place::Url), ("/headers", Place::Text)];
    let render = |value: Value, pointer: &str| {
        let template = ValueTemplate::parse_at(&value, &options, &places).unwrap();
        let rendered = template.render(&Data::Json(data), &options);
        rendered.map(|rendered| rendered.value.pointer(pointer).unwrap().clone())
    };
    let rendered = match text.strip_prefix("header: ") {
        Some(text) => render(json!({ "headers": { "h": text }, "headersToo": "{{o}}" }), "/headers/h"),
        None => render(json!({ "url": text, "body": { "url": "{{o}}" } }), "/url"),
    };
    rendered.map_err(|(_, error)| error.message)
}

#[test]
fn values_in_urls_are_encoded() {
    let data = json!({
        "o": {}, "l": [1], "n": null, "i": 7, "t": true, "x": "a/../b?c=d&e#f g+ä%2e", "dots": "..", "dot": ".", "empty": "",
        "base": "https://api.example.com/v1?k=", "host": "eu-1.example.com", "evil": "x@evil.com/", "port": 8080, "idn": "größe",
    });
    let encoded = "a%2F..%2Fb%3Fc%3Dd%26e%23f%20g%2B%C3%A4%252e";
    for (source, expected) in [
        ("https://h/{{x}}/y", format!("https://h/{encoded}/y")),
        (
            "https://h/?q={{x}}&n={{i}}{{t}}",
            format!("https://h/?q={encoded}&n=7true"),
        ),
        ("https://h/a#{{x}}", format!("https://h/a#{encoded}")),
        ("https://h?q={{x}}", format!("https://h?q={encoded}")),
        ("{{base}}", "https://api.example.com/v1?k=".to_owned()),
        ("{{base}}{{x}}", format!("https://api.example.com/v1?k={encoded}")),
        (
            "https://{{host}}:{{port}}/{{i}}",
            "https://eu-1.example.com:8080/7".to_owned(),
        ),
        ("https://{{idn}}.example.com", "https://größe.example.com".to_owned()),
        (
            "https://h/..{{i}}/{{dots}}x/?{{dots}}",
            "https://h/..7/..x/?..".to_owned(),
        ),
        ("https://h/../{{empty}}", "https://h/../".to_owned()),
    ] {
        assert_eq!(at_place(source, &data), Ok(Value::String(expected)), "{source}");
    }
    for (source, expected) in [
        ("https://{{evil}}", "is in the host of a URL"),
        ("https://api.{{evil}}", "is in the host of a URL"),
        ("https://{{empty}}.example.com/", "is in the host of a URL"),
        ("http{{x}}://h/", "is in the host of a URL"),
        ("https://h/{{dots}}", "would change the path"),
        ("https://h/a/{{dot}}/b", "would change the path"),
        ("https://h/.{{dot}}/b?c", "would change the path"),
        ("https://h/%2E{{dot}}", "would change the path"),
        ("https://h/{{dot}}{{dot}}", "would change the path"),
        (
            "https://h/{{o}}",
            "Failed to resolve {{o}}: its value is an object, which cannot be written into a URL",
        ),
        ("https://h/{{l}}", "its value is an array"),
        ("https://h/{{n}}", "Failed to resolve {{n}}"),
        (
            "{{n}}",
            "Failed to resolve {{n}}: its value is null, which cannot be written into a URL",
        ),
        ("{{i}}", "its value is a number"),
        ("{{o}}", "its value is an object"),
        (
            "header: {{n}}",
            "Failed to resolve {{n}}: its value is null, which cannot be written into a header",
        ),
        ("header: {{o}}", "its value is an object"),
        ("header: Bearer {{l}}", "its value is an array"),
        ("header: Bearer {{n}}", "Failed to resolve {{n}}"),
    ] {
        let error = at_place(source, &data).expect_err(source);
        assert!(error.contains(expected), "{source}: {error}");
    }
    assert_eq!(at_place("header: {{i}}", &data), Ok(json!(7)));
    assert_eq!(
        at_place("header: {{t}} {{x}}", &data),
        Ok(json!("true a/../b?c=d&e#f g+ä%2e"))
    );
}
