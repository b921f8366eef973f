//! Verifies JSON Web Tokens in the compact form (RFC 7515, RFC 7519), with the rules of RFC 8725.
//!
//! The crate `jsonwebtoken` is not used: it cannot read times where `serde_json` keeps numbers as text
//! (`arbitrary_precision`), and `ring`, which checks the signatures, is in the program for TLS already.
//!
//! What must stay true:
//! * The issuer's configuration says which algorithms and keys are used. The header only chooses among them. `jku`, `jwk` and
//!   `x5u` are not read, `none` is not an algorithm, and `crit` is refused, since no extension is known.
//! * No claim is used before the signature is verified, except `iss`, which chooses the issuer.

use super::{Denied, claims::Claims, issuer::Issuer};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use fermata_core::Timestamp;
use fermata_runtime::Identity;
use serde::{Deserialize, de::IgnoredAny};

/// What is read of a header.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<IgnoredAny>,
}

/// The owner of a token, and when it expires.
pub(super) async fn verify(token: &str, issuers: &[Issuer], now: Timestamp) -> Result<(Identity, Timestamp), Denied> {
    const FORM: Denied = Denied::Invalid("it is neither an API key nor a JWT");
    let (message, signature) = token.rsplit_once('.').ok_or(FORM)?;
    let (header, claims) = message
        .split_once('.')
        .filter(|(_, claims)| !claims.contains('.'))
        .ok_or(FORM)?;
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| FORM);
    let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| FORM)?;
    if header.crit.is_some() {
        return Err(Denied::Invalid("its header has `crit`, and no extension is known"));
    }
    if !header.typ.as_deref().is_none_or(is_access_token) {
        return Err(Denied::Invalid("its header says that it is not an access token"));
    }
    let claims = Claims::parse(&decode(claims)?)?;
    let issuer = claims
        .issuer()
        .and_then(|name| issuers.iter().find(|issuer| issuer.name() == name));
    let issuer = issuer.ok_or(Denied::Invalid("its issuer is not configured (`auth.issuers`)"))?;
    let algorithm = issuer.algorithm(&header.alg);
    let algorithm = algorithm.ok_or(Denied::Invalid("its algorithm is not allowed for its issuer"))?;
    let signature = decode(signature)?;
    let kid = header.kid.as_deref();
    let keys = issuer.keys(kid, algorithm).await?;
    let key = keys.find(kid, algorithm);
    if !key.is_some_and(|key| key.verifies(algorithm, message.as_bytes(), &signature)) {
        return Err(Denied::Invalid("its signature is wrong"));
    }
    let expires = claims.check(issuer, now)?;
    Ok((claims.identity(issuer)?, expires))
}

/// Whether a token of this type may be sent as an access token. Tokens for other purposes name another type.
fn is_access_token(typ: &str) -> bool {
    let typ = typ.to_ascii_lowercase();
    let typ = typ.strip_prefix("application/").unwrap_or(&typ);
    matches!(typ, "jwt" | "at+jwt")
}
