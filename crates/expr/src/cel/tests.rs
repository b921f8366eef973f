//! Tests of the limits of CEL expressions and of the names that they read.

use super::*;

fn reads(source: &str) -> Vec<String> {
    let parsed = Expression::parse(source).unwrap_or_else(|error| panic!("{source}: {error}"));
    parsed.reads().iter().map(ToString::to_string).collect()
}

fn refused(source: &str) -> String {
    match Expression::parse(source) {
        Ok(_) => panic!("accepted: {source}"),
        Err(error) => error.message,
    }
}

#[test]
fn reads_are_the_names_with_their_members() {
    for (source, expected) in [
        ("score > 0.8", &["score"][..]),
        (
            "user.name.startsWith('a') && user.age >= 18",
            &["user.age", "user.name"],
        ),
        ("items.all(i, i.price < limit)", &["i", "i.price", "items", "limit"]),
        ("size(items) > 0 ? a.b : .c", &["a.b", "c", "items"]),
        ("[x, .y].size() == 2", &["x", "y"]),
        ("{'a': b, c: 'd'}.a", &["b", "c"]),
        ("order['id'] == order.items[0].id", &["order", "order.items"]),
        ("a in b && !(c in d)", &["a", "b", "c", "d"]),
        ("'x' + \"y.z\" + r'\\' + b\"q\" + '''w'u''' + 'it\\'s'", &[]),
        ("a // b.c\n+ d", &["a", "d"]),
        ("user.`first-name` == null || true", &["user['first-name']"]),
        ("1.5e-3 + .5 + 0x1F + 1u", &[]),
        ("b == r && rb", &["b", "r", "rb"]),
        ("a.?b.orValue(1)", &["a.b"]),
        ("timestamp(at).getFullYear()", &["at"]),
        ("has(state.score) && state.score > 1", &["score", "state.score"]),
        ("größe", &["größe"]),
    ] {
        assert_eq!(reads(source), expected, "{source}");
    }
    // The whole data.
    for source in [
        "state['a-b'] == 1",
        "state.all(k, k != '')",
        "size(state)",
        "a + size(state)",
    ] {
        let parsed = Expression::parse(source).unwrap();
        assert_eq!(parsed.reads(), [path(&[])], "{source}");
    }
}

#[test]
fn long_deep_and_chained_sources_are_refused() {
    for (source, message) in [
        (" ".to_owned(), "empty"),
        (format!("'{}'", "x".repeat(1023)), "1024 are allowed"),
        (format!("{}1{}", "(".repeat(400), ")".repeat(400)), "deeper than 40"),
        ("(".repeat(1000), "deeper than 40"),
        (format!("{}{}", "[".repeat(41), "]".repeat(41)), "deeper than 40"),
        ("1+".repeat(500) + "1", "more than 128"),
        ("!".repeat(1000) + "a", "more than 128"),
        ("-".repeat(1000) + "1", "more than 128"),
        ("a?b:".repeat(200) + "c", "more than 128"),
        ("a".to_owned() + &".b".repeat(400), "more than 128"),
        ("a".to_owned() + &"[0]".repeat(300), "more than 128"),
        ("a in ".repeat(200) + "b", "more than 128"),
        (
            "l.map(a,l.filter(b,l.all(c,l.exists(d,d==a))))".to_owned(),
            "deeper than 3",
        ),
        (
            "l.exists_one(a,l.map(b,l.map(c,l.map(d,d))))".to_owned(),
            "deeper than 3",
        ),
        ("(a".to_owned(), "`(` is not closed"),
        ("[a)".to_owned(), "`)` closes nothing"),
        ("a]".to_owned(), "`]` closes nothing"),
        ("'abc".to_owned(), "the string is not closed"),
        ("a == '''x'".to_owned(), "the string is not closed"),
    ] {
        let refused = refused(&source);
        assert!(refused.contains(message), "{source}: {refused}");
    }
}

#[test]
fn sources_at_the_limits_are_accepted() {
    for source in [
        format!("'{}'", "x".repeat(1022)),
        format!("{}1{}", "(".repeat(40), ")".repeat(40)),
        "1+".repeat(128) + "1",
        "l.map(a,l.filter(b,l.all(c,c==a)))".to_owned(),
        "l.map(a,a).map(b,b).map(c,c).map(d,d).map(e,e)".to_owned(),
        "'((((' + \"]]]]\" // ((((".to_owned(),
    ] {
        assert!(Expression::parse(&source).is_ok(), "{source}");
    }
}

proptest::proptest! {
    #[test]
    fn any_text_is_scanned(source in ".{0,200}") {
        let _ = Expression::parse(&source);
    }
}
