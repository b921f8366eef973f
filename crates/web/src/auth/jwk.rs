//! Public keys as identity providers publish them (RFC 7517), and the signatures that they verify (RFC 7518, RFC 8037).
//!
//! What must stay true: a key verifies only signatures of its own kind. A symmetric key (`oct`) in a set of public keys is
//! skipped: with it, everyone who can read the set could sign tokens.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    hmac,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
        RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384,
        RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
    },
};
use serde::Deserialize;
use serde_json::Value;

/// The most keys of a set.
const MAX_KEYS: usize = 100;

/// A signature algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
    Hs256,
    Hs384,
    Hs512,
}

impl Algorithm {
    /// All algorithms with a public key.
    pub const PUBLIC: [Algorithm; 9] = [
        Algorithm::Rs256,
        Algorithm::Rs384,
        Algorithm::Rs512,
        Algorithm::Ps256,
        Algorithm::Ps384,
        Algorithm::Ps512,
        Algorithm::Es256,
        Algorithm::Es384,
        Algorithm::EdDsa,
    ];

    /// All algorithms with a secret that both sides have.
    pub const SHARED: [Algorithm; 3] = [Algorithm::Hs256, Algorithm::Hs384, Algorithm::Hs512];

    /// Its name in headers.
    pub fn as_str(self) -> &'static str {
        match self {
            Algorithm::Rs256 => "RS256",
            Algorithm::Rs384 => "RS384",
            Algorithm::Rs512 => "RS512",
            Algorithm::Ps256 => "PS256",
            Algorithm::Ps384 => "PS384",
            Algorithm::Ps512 => "PS512",
            Algorithm::Es256 => "ES256",
            Algorithm::Es384 => "ES384",
            Algorithm::EdDsa => "EdDSA",
            Algorithm::Hs256 => "HS256",
            Algorithm::Hs384 => "HS384",
            Algorithm::Hs512 => "HS512",
        }
    }

    /// The algorithm of this name, as it is written in headers.
    pub fn parse(name: &str) -> Option<Algorithm> {
        let mut all = Algorithm::PUBLIC.into_iter().chain(Algorithm::SHARED);
        all.find(|algorithm| algorithm.as_str() == name)
    }

    fn rsa(self) -> Option<&'static RsaParameters> {
        match self {
            Algorithm::Rs256 => Some(&RSA_PKCS1_2048_8192_SHA256),
            Algorithm::Rs384 => Some(&RSA_PKCS1_2048_8192_SHA384),
            Algorithm::Rs512 => Some(&RSA_PKCS1_2048_8192_SHA512),
            Algorithm::Ps256 => Some(&RSA_PSS_2048_8192_SHA256),
            Algorithm::Ps384 => Some(&RSA_PSS_2048_8192_SHA384),
            Algorithm::Ps512 => Some(&RSA_PSS_2048_8192_SHA512),
            _ => None,
        }
    }
}

/// A key that verifies signatures.
#[derive(Clone)]
pub(super) struct Key {
    kid: Option<String>,
    /// The only algorithm it is for, if it says so.
    algorithm: Option<Algorithm>,
    material: Material,
}

#[derive(Clone)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
    Secret(Vec<u8>),
}

impl Key {
    /// The key of an issuer that signs with a shared secret.
    pub(super) fn shared(secret: &[u8]) -> Key {
        Key {
            kid: None,
            algorithm: None,
            material: Material::Secret(secret.to_vec()),
        }
    }

    /// Whether it verifies signatures of this algorithm.
    fn fits(&self, algorithm: Algorithm) -> bool {
        let kind = match &self.material {
            Material::Rsa { .. } => algorithm.rsa().is_some(),
            Material::P256(_) => algorithm == Algorithm::Es256,
            Material::P384(_) => algorithm == Algorithm::Es384,
            Material::Ed25519(_) => algorithm == Algorithm::EdDsa,
            Material::Secret(_) => Algorithm::SHARED.contains(&algorithm),
        };
        kind && self.algorithm.is_none_or(|own| own == algorithm)
    }

    /// Whether this is the signature of the message.
    pub(super) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        if !self.fits(algorithm) {
            return false;
        }
        let verify = |with: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(with, key).verify(message, signature).is_ok()
        };
        match &self.material {
            Material::Rsa { n, e } => algorithm
                .rsa()
                .is_some_and(|with| RsaPublicKeyComponents { n, e }.verify(with, message, signature).is_ok()),
            Material::P256(point) => verify(&ECDSA_P256_SHA256_FIXED, point),
            Material::P384(point) => verify(&ECDSA_P384_SHA384_FIXED, point),
            Material::Ed25519(point) => verify(&ED25519, point),
            Material::Secret(secret) => {
                let with = match algorithm {
                    Algorithm::Hs384 => hmac::HMAC_SHA384,
                    Algorithm::Hs512 => hmac::HMAC_SHA512,
                    _ => hmac::HMAC_SHA256,
                };
                // Compares in constant time.
                hmac::verify(&hmac::Key::new(with, secret), message, signature).is_ok()
            }
        }
    }
}

/// The keys of an issuer.
#[derive(Clone, Default)]
pub(super) struct KeySet(Vec<Key>);

#[derive(Deserialize)]
struct RawSet {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct RawKey {
    kty: String,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    kid: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    pub(super) fn one(key: Key) -> KeySet {
        KeySet(vec![key])
    }

    /// Reads a JWK set. Keys of other kinds, and keys that are not for signatures, are skipped.
    pub(super) fn parse(json: &[u8]) -> Result<KeySet, String> {
        let set: RawSet = serde_json::from_slice(json).map_err(|error| format!("it is not a JWK set: {error}"))?;
        if set.keys.len() > MAX_KEYS {
            return Err(format!("it has more than {MAX_KEYS} keys"));
        }
        let keys: Vec<Key> = set.keys.into_iter().filter_map(read_key).collect();
        match keys.is_empty() {
            true => Err("it has no public key that verifies signatures (RSA, P-256, P-384 or Ed25519)".to_owned()),
            false => Ok(KeySet(keys)),
        }
    }

    /// The keys that may have made a signature: the one with this id, or without an id the only one that fits.
    pub(super) fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<&Key> {
        let mut fitting = self.0.iter().filter(|key| key.fits(algorithm));
        match kid {
            // A shared secret has no id.
            Some(kid) => fitting.find(|key| key.kid.as_deref() == Some(kid) || key.is_secret()),
            None => fitting.next().filter(|_| fitting.next().is_none()),
        }
    }
}

impl Key {
    fn is_secret(&self) -> bool {
        matches!(self.material, Material::Secret(_))
    }
}

fn read_key(value: Value) -> Option<Key> {
    let raw: RawKey = serde_json::from_value(value).ok()?;
    let is_for_signatures = raw.usage.as_deref().is_none_or(|usage| usage == "sig")
        && raw
            .key_ops
            .as_ref()
            .is_none_or(|all| all.iter().any(|one| one == "verify"));
    if !is_for_signatures {
        return None;
    }
    let algorithm = match &raw.alg {
        None => None,
        Some(name) => Some(Algorithm::parse(name).filter(|one| Algorithm::PUBLIC.contains(one))?),
    };
    let bytes = |text: Option<&String>| URL_SAFE_NO_PAD.decode(text?).ok();
    let number = |text| {
        let bytes = bytes(text)?;
        let first = bytes.iter().position(|byte| *byte != 0)?;
        Some(bytes[first..].to_vec())
    };
    let point = |length: usize| {
        let (x, y) = (bytes(raw.x.as_ref())?, bytes(raw.y.as_ref())?);
        (x.len() == length && y.len() == length).then(|| [&[4][..], &x, &y].concat())
    };
    let material = match (raw.kty.as_str(), raw.crv.as_deref()) {
        ("RSA", _) => Material::Rsa {
            n: number(raw.n.as_ref())?,
            e: number(raw.e.as_ref())?,
        },
        ("EC", Some("P-256")) => Material::P256(point(32)?),
        ("EC", Some("P-384")) => Material::P384(point(48)?),
        ("OKP", Some("Ed25519")) => Material::Ed25519(bytes(raw.x.as_ref()).filter(|x| x.len() == 32)?),
        _ => return None,
    };
    Some(Key {
        kid: raw.kid,
        algorithm,
        material,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const RSA_N: &str = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
    const CLAIMS: &str =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";

    fn set(key: Value) -> KeySet {
        KeySet::parse(json!({ "keys": [key] }).to_string().as_bytes()).unwrap()
    }

    fn verifies(set: &KeySet, algorithm: Algorithm, message: &str, signature: &str) -> bool {
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        let key = set.find(None, algorithm);
        key.is_some_and(|key| key.verifies(algorithm, message.as_bytes(), &signature))
    }

    /// The examples of RFC 7515 (A.1, A.2, A.3) and RFC 8037 (A.4).
    #[test]
    fn published_signatures_are_verified() {
        let secret = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
        let shared = KeySet::one(Key::shared(&URL_SAFE_NO_PAD.decode(secret).unwrap()));
        let rsa = set(json!({ "kty": "RSA", "n": RSA_N, "e": "AQAB" }));
        let p256 = set(
            json!({ "kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
                               "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0" }),
        );
        let ed25519 =
            set(json!({ "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" }));
        let examples = [
            (
                &shared,
                Algorithm::Hs256,
                format!("eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.{CLAIMS}"),
                "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
            ),
            (
                &rsa,
                Algorithm::Rs256,
                format!("eyJhbGciOiJSUzI1NiJ9.{CLAIMS}"),
                "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw",
            ),
            (
                &p256,
                Algorithm::Es256,
                format!("eyJhbGciOiJFUzI1NiJ9.{CLAIMS}"),
                "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
            ),
            (
                &ed25519,
                Algorithm::EdDsa,
                "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc".to_owned(),
                "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
            ),
        ];
        for (set, algorithm, message, signature) in examples {
            assert!(verifies(set, algorithm, &message, signature), "{algorithm:?}");
            assert!(
                !verifies(set, algorithm, &format!("{message}A"), signature),
                "{algorithm:?}"
            );
            assert!(!verifies(set, algorithm, &message, ""), "{algorithm:?}");
            for other in Algorithm::PUBLIC.into_iter().chain(Algorithm::SHARED) {
                let same = other == algorithm;
                assert_eq!(
                    verifies(set, other, &message, signature),
                    same,
                    "{algorithm:?} {other:?}"
                );
            }
        }
    }

    #[test]
    fn keys_that_must_not_verify_are_skipped() {
        let rsa = json!({ "kty": "RSA", "kid": "a", "n": RSA_N, "e": "AQAB" });
        let with = |name: &str, value: Value| {
            let mut key = rsa.clone();
            key[name] = value;
            key
        };
        for skipped in [
            json!({ "kty": "oct", "kid": "a", "k": "AyM1SysPpbyDfgZld3umj1qzKObwVMko", "alg": "HS256" }),
            with("use", json!("enc")),
            with("key_ops", json!(["encrypt"])),
            with("alg", json!("HS256")),
            with("alg", json!("RSA-OAEP")),
            with("n", json!("!")),
            with("n", json!("AAAA")),
            json!({ "kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA" }),
            json!({ "kty": "EC", "crv": "secp256k1", "x": "AAAA", "y": "AAAA" }),
            json!({ "kty": "OKP", "crv": "X25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" }),
            json!("key"),
            json!({}),
        ] {
            let parsed = KeySet::parse(json!({ "keys": [skipped] }).to_string().as_bytes());
            assert!(parsed.is_err(), "{skipped}");
            let both = KeySet::parse(json!({ "keys": [skipped, rsa] }).to_string().as_bytes()).unwrap();
            assert_eq!(both.0.len(), 1, "{skipped}");
        }
        for wrong in ["", "[]", "{}", "{\"keys\": 1}", "{\"keys\": []}"] {
            assert!(KeySet::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let many: Vec<_> = vec![rsa.clone(); MAX_KEYS + 1];
        assert!(KeySet::parse(json!({ "keys": many }).to_string().as_bytes()).is_err());
    }

    #[test]
    fn keys_are_found_by_their_id_and_kind() {
        let rsa = |kid: &str| json!({ "kty": "RSA", "kid": kid, "n": RSA_N, "e": "AQAB" });
        let mut pinned = rsa("c");
        pinned["alg"] = "PS256".into();
        let set = KeySet::parse(json!({ "keys": [rsa("a"), rsa("b"), pinned] }).to_string().as_bytes()).unwrap();
        let found = |kid, algorithm| set.find(kid, algorithm).is_some();
        assert!(found(Some("a"), Algorithm::Rs256) && found(Some("a"), Algorithm::Ps512));
        assert!(!found(Some("d"), Algorithm::Rs256) && !found(Some("a"), Algorithm::Es256));
        assert!(found(Some("c"), Algorithm::Ps256) && !found(Some("c"), Algorithm::Rs256));
        assert!(!found(None, Algorithm::Rs256), "it could be either");
    }
}
