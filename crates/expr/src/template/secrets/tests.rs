//! Templates with secrets: what is rendered, where references stand, and what is refused.

use crate::{
    Data,
    template::{Options, Place, Rendered, Syntax, Template, ValueTemplate},
};
use serde_json::{Value, json};

fn rendered(parameters: Value, options: &Options, places: &[(&str, Place)], trigger: &Value) -> Rendered {
    let template = ValueTemplate::parse_at(&parameters, options, places).unwrap();
    let scope = Data::object([("trigger", Data::Json(trigger))]);
    template.render(&scope, options).unwrap()
}

fn resolve(rendered: Rendered) -> Result<Value, String> {
    rendered.resolve(1000, |name| match name {
        "KEY" => Some("a/b c"),
        "BASE" => Some("https://api.example.com"),
        "HOST" => Some("example.com"),
        _ => None,
    })
}

#[test]
fn references_are_text_until_they_are_resolved() {
    let parameters = json!({ "n~/": ["{{secrets.KEY}}", "x{{ secrets['KEY'] }}y{{ secrets.KEY }}"], "k": 1 });
    for syntax in [Syntax::Scriban, Syntax::Paths] {
        let options = Options {
            syntax,
            ..Options::default()
        };
        let rendered = rendered(parameters.clone(), &options, &[], &json!({}));
        let shown = json!({ "n~/": ["{{ secrets.KEY }}", "x{{ secrets.KEY }}y{{ secrets.KEY }}"], "k": 1 });
        assert_eq!((&rendered.value, rendered.secret_names()), (&shown, vec!["KEY"]));
        assert_eq!(
            resolve(rendered),
            Ok(json!({ "n~/": ["a/b c", "xa/b cya/b c"], "k": 1 }))
        );
    }
}

#[test]
fn references_in_blocks_are_resolved_in_order() {
    let options = Options {
        loops: true,
        ..Options::default()
    };
    let source =
        "{{ for x in trigger.list }}{{ x }}={{ secrets.KEY }};{{ end }}{{ if trigger.no }}{{ secrets.NO }}{{ end }}";
    let trigger = json!({ "list": ["{{ secrets.KEY }}", 2], "no": false });
    let rendered = rendered(json!(source), &options, &[], &trigger);
    assert_eq!(resolve(rendered), Ok(json!("{{ secrets.KEY }}=a/b c;2=a/b c;")));
}

#[test]
fn secrets_in_urls_are_encoded() {
    let places = [("/url", Place::Url)];
    let options = Options {
        syntax: Syntax::Paths,
        ..Options::default()
    };
    for (url, expected) in [
        (
            "https://a.b/{{secrets.KEY}}/x?k={{secrets.KEY}}",
            Ok("https://a.b/a%2Fb%20c/x?k=a%2Fb%20c"),
        ),
        (
            "{{secrets.BASE}}/{{secrets.KEY}}",
            Ok("https://api.example.com/a%2Fb%20c"),
        ),
        ("{{secrets.BASE}}/{{trigger.id}}", Ok("https://api.example.com/1%2F2")),
        (
            "https://{{secrets.HOST}}/{{trigger.id}}",
            Ok("https://example.com/1%2F2"),
        ),
        (
            "https://{{secrets.KEY}}/",
            Err("{{ secrets.KEY }} is in the host of a URL"),
        ),
    ] {
        let rendered = rendered(json!({ "url": url }), &options, &places, &json!({ "id": "1/2" }));
        match (resolve(rendered), expected) {
            (Ok(value), Ok(expected)) => assert_eq!(value["url"], expected),
            (Err(error), Err(expected)) => assert!(error.starts_with(expected), "{error}"),
            (other, _) => panic!("{url}: {other:?}"),
        }
    }
    // After a secret at the start, data can only be a part of a host name until the host ends.
    let template =
        ValueTemplate::parse_at(&json!({ "url": "{{secrets.BASE}}{{trigger.id}}" }), &options, &places).unwrap();
    let trigger = json!({ "id": "@evil.example" });
    let scope = Data::object([("trigger", Data::Json(&trigger))]);
    assert!(template.render(&scope, &options).is_err());
}

#[test]
fn secrets_can_only_be_inserted() {
    let options = Options {
        loops: true,
        functions: true,
        ..Options::default()
    };
    for source in [
        "{{ secrets }}",
        "{{ secrets.KEY.length }}",
        "{{ secrets.KEY ?? 'x' }}",
        "{{ trigger.x ?? secrets.KEY }}",
        "{{ secrets.KEY | string.upcase }}",
        "{{ json(secrets) }}",
        "{{ secrets[trigger.x] }}",
        "{{ secrets[0] }}",
        "{{ trigger[secrets.KEY] }}",
        "{{ (secrets).KEY }}",
        "{{ if secrets.KEY == 'x' }}y{{ end }}",
        "{{ for s in secrets }}{{ s }}{{ end }}",
        "{{ for secrets in trigger.x }}{{ secrets.KEY }}{{ end }}",
        "{{ secrets['a-b'] }}",
    ] {
        let error = Template::parse(source, &options).unwrap_err();
        assert!(error.message.contains("secret"), "{source}: {}", error.message);
    }
    let paths = Options {
        syntax: Syntax::Paths,
        ..Options::default()
    };
    for source in ["{{secrets}}", "{{secrets.a-b}}", "{{secrets.KEY.x}}"] {
        assert!(Template::parse(source, &paths).is_err(), "{source}");
    }
    let off = Options {
        secrets: false,
        ..options
    };
    assert!(Template::parse("{{ secrets.KEY ?? 'x' }}", &off).is_ok());
}

#[test]
fn unknown_secrets_and_long_results_are_errors() {
    let options = Options::default();
    let unknown = rendered(json!("{{ secrets.OTHER }}"), &options, &[], &json!({}));
    assert_eq!(resolve(unknown), Err("the secret `OTHER` is unknown".to_owned()));
    let long = rendered(
        json!(["{{ secrets.KEY }}", "{{ secrets.KEY }}"]),
        &options,
        &[],
        &json!({}),
    );
    assert!(long.clone().resolve(9, |_| Some("12345")).is_err());
    assert!(long.resolve(10, |_| Some("12345")).is_ok());
}
