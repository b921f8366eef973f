//! Signature vectors of each provider: accepted as published, refused with one bit changed, an old time, a doubled header.
//!
//! The vectors of Standard Webhooks, GitHub and Slack are those of their documentation; the others were computed with Python.

use super::*;
use serde_json::json;

struct Vector {
    config: Value,
    secret: &'static str,
    headers: Vec<(&'static str, String)>,
    body: &'static str,
    /// Unix time of the request, if it is signed.
    time: Option<i64>,
}

const SLACK_BODY: &str = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V\
&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=\
&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN\
&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";

fn vectors() -> Vec<Vector> {
    vec![
        Vector {
            config: json!({"scheme": "standardWebhooks", "secret": "S"}),
            secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            headers: vec![
                ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek".into()),
                ("webhook-timestamp", "1614265330".into()),
                (
                    "webhook-signature",
                    "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=".into(),
                ),
            ],
            body: r#"{"test": 2432232314}"#,
            time: Some(1_614_265_330),
        },
        Vector {
            config: json!({"scheme": "github", "secret": "S"}),
            secret: "It's a Secret to Everybody",
            headers: vec![(
                "X-Hub-Signature-256",
                "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17".into(),
            )],
            body: "Hello, World!",
            time: None,
        },
        Vector {
            config: json!({"scheme": "stripe", "secret": "S"}),
            secret: "whsec_test_secret",
            headers: vec![(
                "Stripe-Signature",
                "t=1492774577,v1=654b43d3508ecadb3f8cefc4bc7d3d2bdc5ba9e03bf2c89b2d0657a8e24e4543,v0=00".into(),
            )],
            body: r#"{"id":"evt_1","object":"event"}"#,
            time: Some(1_492_774_577),
        },
        Vector {
            config: json!({"scheme": "slack", "secret": "S"}),
            secret: "8f742231b10e8888abcd99yyyzzz85a5",
            headers: vec![
                ("X-Slack-Request-Timestamp", "1531420618".into()),
                (
                    "X-Slack-Signature",
                    "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503".into(),
                ),
            ],
            body: SLACK_BODY,
            time: Some(1_531_420_618),
        },
        Vector {
            config: json!({"scheme": "shopify", "secret": "S"}),
            secret: "hush",
            headers: vec![(
                "X-Shopify-Hmac-SHA256",
                "VnKUjZsLuN5iZWjn5EntcBVCF9kMN43LglzCE1/GSeY=".into(),
            )],
            body: r#"{"id":1}"#,
            time: None,
        },
        Vector {
            config: json!({"scheme": "hmac", "secret": "S", "header": "X-Signature"}),
            secret: "generic",
            headers: vec![(
                "x-signature",
                "7e5acedfe20166208cecae6b4c9ae2887ce0edcb5403aecc08423d29d3371dfa".into(),
            )],
            body: r#"{"a":1}"#,
            time: None,
        },
        Vector {
            config: json!({"scheme": "hmac", "secret": "S", "header": "X-Signature", "prefix": "v7=", "encoding": "base64",
                "timestampHeader": "X-Time", "template": "{timestamp}|{body}|end"}),
            secret: "generic",
            headers: vec![
                ("x-signature", "v7=mCSA6fS+bewC+COjuCx/mUcotvnE4MbHCIZMML1TeoU=".into()),
                ("x-time", "1700000000".into()),
            ],
            body: r#"{"a":1}"#,
            time: Some(1_700_000_000),
        },
        Vector {
            config: json!({"scheme": "gitlab", "secret": "S"}),
            secret: "a-token",
            headers: vec![("X-Gitlab-Token", "a-token".into())],
            body: "{}",
            time: None,
        },
    ]
}

impl Vector {
    fn scheme(&self) -> SignatureConfig {
        SignatureConfig::parse(&self.config, "").unwrap_or_else(|problems| panic!("{problems:?}"))
    }

    fn verify(
        &self,
        headers: &[(&str, String)],
        body: &[u8],
        secrets: &[&str],
        offset: i64,
    ) -> Result<Verified, SignatureError> {
        let headers = Headers::new(headers.iter().map(|(name, value)| (*name, value.as_bytes())));
        let now = Timestamp((self.time.unwrap_or(1_800_000_000) + offset) * 1_000_000);
        self.scheme().verify(secrets, &headers, body, now)
    }

    fn is_accepted(&self, headers: &[(&str, String)], body: &[u8], offset: i64) -> bool {
        self.verify(headers, body, &[self.secret], offset).is_ok()
    }
}

#[test]
fn published_vectors_are_accepted() {
    for vector in vectors() {
        let result = vector.verify(&vector.headers, vector.body.as_bytes(), &[vector.secret], 0);
        assert!(result.is_ok(), "{}: {result:?}", vector.config);
        assert_eq!(
            result,
            vector.verify(&vector.headers, vector.body.as_bytes(), &["other", vector.secret], 0)
        );
        assert_eq!(result.unwrap().digest.is_none(), vector.config["scheme"] == "gitlab");
    }
}

#[test]
fn one_changed_bit_of_the_body_is_refused() {
    for vector in vectors().iter().filter(|vector| vector.config["scheme"] != "gitlab") {
        for index in 0..vector.body.len() {
            let mut body = vector.body.as_bytes().to_vec();
            body[index] ^= 1;
            assert!(
                !vector.is_accepted(&vector.headers, &body, 0),
                "{} byte {index}",
                vector.config
            );
        }
        assert!(!vector.is_accepted(&vector.headers, &[vector.body.as_bytes(), b" "].concat(), 0));
        assert!(!vector.is_accepted(&vector.headers, b"", 0));
    }
}

#[test]
fn one_changed_character_of_a_header_is_refused() {
    for vector in vectors() {
        for (header, (name, value)) in vector.headers.iter().enumerate() {
            // Stripe's `v0` is not compared; the last character of base64 has bits that mean nothing.
            let compared = value.find(",v0=").unwrap_or(value.len()) - usize::from(value.ends_with('='));
            for index in 0..compared {
                let mut bytes = value.clone().into_bytes();
                bytes[index] = if bytes[index] == b'0' { b'1' } else { b'0' };
                let changed = String::from_utf8(bytes).unwrap();
                let last_of_base64 = value[index + 1..].starts_with('=');
                if changed == *value || last_of_base64 {
                    continue;
                }
                let mut headers = vector.headers.clone();
                headers[header].1 = changed;
                assert!(
                    !vector.is_accepted(&headers, vector.body.as_bytes(), 0),
                    "{} {name} {index}",
                    vector.config
                );
            }
        }
    }
}

#[test]
fn requests_outside_of_the_window_are_refused() {
    for vector in vectors().iter().filter(|vector| vector.time.is_some()) {
        let body = vector.body.as_bytes();
        for (offset, accepted) in [(300, true), (-300, true), (301, false), (-301, false), (86_400, false)] {
            assert_eq!(
                vector.is_accepted(&vector.headers, body, offset),
                accepted,
                "{} {offset}",
                vector.config
            );
        }
        let late = vector.verify(&vector.headers, body, &[vector.secret], 900);
        assert_eq!(late, Err(SignatureError::OutsideWindow(900, 300)), "{}", vector.config);
        // A wrong signature says so whatever the time is.
        assert_eq!(
            vector.verify(&vector.headers, b"x", &[vector.secret], 900),
            Err(SignatureError::Wrong)
        );
    }
}

#[test]
fn doubled_and_missing_headers_are_refused() {
    for vector in vectors() {
        for index in 0..vector.headers.len() {
            let name = vector.headers[index].0.to_ascii_lowercase();
            let mut doubled = vector.headers.clone();
            doubled.push(vector.headers[index].clone());
            let result = vector.verify(&doubled, vector.body.as_bytes(), &[vector.secret], 0);
            assert_eq!(result, Err(SignatureError::Doubled(name.clone())), "{}", vector.config);
            let mut missing = vector.headers.clone();
            missing.remove(index);
            let result = vector.verify(&missing, vector.body.as_bytes(), &[vector.secret], 0);
            assert_eq!(result, Err(SignatureError::Missing(name)), "{}", vector.config);
        }
    }
}

#[test]
fn other_secrets_and_no_secrets_are_refused() {
    for vector in vectors() {
        let body = vector.body.as_bytes();
        for secrets in [&["b3RoZXI="][..], &["b3RoZXI=", ""], &[""], &[]] {
            let result = vector.verify(&vector.headers, body, secrets, 0);
            assert!(result.is_err(), "{} {secrets:?}", vector.config);
        }
    }
    // An empty token does not equal an empty secret.
    let gitlab = vectors().pop().unwrap();
    assert!(
        gitlab
            .verify(&[("x-gitlab-token", String::new())], b"", &[""], 0)
            .is_err()
    );
}

#[test]
fn malformed_headers_are_refused() {
    let stripe = &vectors()[2];
    let body = stripe.body.as_bytes();
    let right = "654b43d3508ecadb3f8cefc4bc7d3d2bdc5ba9e03bf2c89b2d0657a8e24e4543";
    for (header, accepted) in [
        (format!("t=1492774577,v1={right}"), true),
        (format!("t=1492774577, v1={right}"), true),
        (format!("t=1492774577,v1={},v1={right}", "0".repeat(64)), true),
        (format!("t=1492774577,v0={right}"), false),
        (format!("v1={right}"), false),
        (format!("t=1492774577,t=1492774577,v1={right}"), false),
        (format!("t=+1492774577,v1={right}"), false),
        (format!("t=1492774577,v1={}", &right[..63]), false),
        (format!("t=1492774577,v1={}", &right[..62]), false),
        (format!("t=1492774577,v1={right}00"), false),
        (String::new(), false),
    ] {
        assert_eq!(
            stripe.is_accepted(&[("stripe-signature", header.clone())], body, 0),
            accepted,
            "{header}"
        );
    }
    let standard = &vectors()[0];
    let mut headers = standard.headers.clone();
    let right = headers[2].1.clone();
    for (list, accepted) in [
        (format!("v1,AAAA {right} v1a,xyz"), true),
        (format!("v2,{}", &right[3..]), false),
        (right[3..].to_owned(), false),
        (format!("{right},"), false),
    ] {
        headers[2].1 = list.clone();
        assert_eq!(
            standard.is_accepted(&headers, standard.body.as_bytes(), 0),
            accepted,
            "{list}"
        );
    }
    // The prefix of Standard Webhooks is optional, and a secret that is not base64 is reported as such.
    let bare = standard.verify(&standard.headers, standard.body.as_bytes(), &[&standard.secret[6..]], 0);
    assert!(bare.is_ok());
    let unusable = standard.verify(&standard.headers, standard.body.as_bytes(), &["whsec_?"], 0);
    assert_eq!(unusable, Err(SignatureError::UnusableSecret));
}

#[test]
fn a_repeated_request_has_the_same_digest_and_another_body_has_not() {
    let sign = |body: &[u8]| {
        let mut mac = keyed(b"generic");
        mac.update(body);
        hex(&mac.finalize().into_bytes())
    };
    let vector = &vectors()[5];
    let digest = |body: &[u8]| {
        vector
            .verify(&[("x-signature", sign(body))], body, &["generic"], 0)
            .unwrap()
            .digest
    };
    assert_eq!(digest(b"a"), digest(b"a"));
    assert_ne!(digest(b"a"), digest(b"b"));
}
