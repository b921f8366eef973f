//! Sign-in. The cookie holds the API key or token that was pasted, and is used in place of the header `Authorization`.
//!
//! What must stay true:
//! * The cookie is `HttpOnly` and `SameSite=Strict`. It counts for pages and for requests that pages of this server send
//!   (`Sec-Fetch-Site: same-origin`), never for other requests.
//! * A revoked key ends its sessions as it ends all else: the key is checked with each request.
//! * The token is not logged and not part of any response.

use super::{Page, frame::Frame, has_value, is_page, route};
use crate::{Web, auth::Denied, error::ApiError, extract::OptionalJson, peer::Peer};
use axum::{
    Extension,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use maud::html;
use serde::Deserialize;

const COOKIE: &str = "fermata_session";

/// Seven days. The key or token may end before.
const MAX_AGE: u32 = 7 * 24 * 3600;

/// Browsers drop larger cookies.
const MAX_TOKEN: usize = 3800;

/// Uses the cookie of a request as its credential, if it counts for this request and there is no other.
pub(crate) fn use_cookie(request: &mut Request) {
    let headers = request.headers();
    let counts = route(request).is_some_and(is_page) || has_value(headers, "sec-fetch-site", "same-origin");
    if !counts || headers.contains_key(header::AUTHORIZATION) {
        return;
    }
    let Some(token) = cookie(headers) else { return };
    if let Ok(value) = HeaderValue::try_from(format!("Bearer {token}")) {
        request.headers_mut().insert(header::AUTHORIZATION, value);
    }
}

fn cookie(headers: &HeaderMap) -> Option<String> {
    let all = headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';'));
    let token = pairs.find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))?;
    (!token.is_empty()).then(|| token.to_owned())
}

/// Removes the cookie.
pub(super) fn forget(headers: &mut HeaderMap) {
    let gone = format!("{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    if let Ok(value) = HeaderValue::try_from(gone) {
        headers.append(header::SET_COOKIE, value);
    }
}

/// The page that asks for a key or token. A link of another site sends no cookie, so the browser asks once more by itself.
pub(super) fn page(error: &ApiError, comes_from_elsewhere: bool) -> Page {
    let mut frame = Frame::bare("Sign in");
    frame.reload = comes_from_elsewhere;
    let was_refused = error.code != "UNAUTHENTICATED";
    frame.page(html! {
        form.sign-in.card data-sign-in {
            h1 { "Sign in" }
            p.muted { "Paste an API key or a token. It stays in a cookie that no script can read." }
            label { "API key or token"
                input type="password" name="token" required autocomplete="current-password" autofocus spellcheck="false";
            }
            p.error role="alert" data-error { @if was_refused { (error.message) } }
            button.button.primary { "Sign in" }
            p.note { "To create a key: " code { "fermata keys create --name me --scopes admin,workflows:read,workflows:execute,workflows:manage" } }
            noscript { p.error { "Signing in needs JavaScript." } }
        }
    })
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignIn {
    token: String,
}

/// `POST /sign-in`: sets the cookie, if the token is accepted.
pub(crate) async fn sign_in(
    State(web): State<Web>,
    peer: Option<Extension<Peer>>,
    OptionalJson(body, _share): OptionalJson<SignIn>,
) -> Result<Response, ApiError> {
    let token = body.token.trim();
    if token.len() > MAX_TOKEN {
        return Err(Denied::Invalid("it is longer than a cookie may be (3,800 bytes)").into());
    }
    let is_plain = !token.is_empty()
        && token
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b",;\"\\".contains(&byte));
    let value = HeaderValue::try_from(format!("Bearer {token}"))
        .ok()
        .filter(|_| is_plain);
    let value = value.ok_or(Denied::Invalid("it is not an API key or a JWT"))?;
    let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
    let address = peer.map(|peer| peer.0.0);
    if let Err(denied) = web.authenticate(&headers, address).await {
        let error = ApiError::from(denied);
        web.record_denied(None, address, "POST /sign-in".to_owned(), error.code);
        return Err(error);
    }
    let is_https = web.settings().public_url.starts_with("https://");
    let secure = if is_https { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={MAX_AGE}{secure}");
    let cookie = HeaderValue::try_from(cookie).map_err(|_| ApiError::internal("INTERNAL"))?;
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
}

/// `POST /sign-out`: removes the cookie.
pub(crate) async fn sign_out() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    forget(response.headers_mut());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_found_among_others() {
        let read = |text: &str| {
            let headers = HeaderMap::from_iter([(header::COOKIE, HeaderValue::try_from(text).unwrap())]);
            cookie(&headers)
        };
        assert_eq!(read("a=1; fermata_session=fk_x.y; b=2").as_deref(), Some("fk_x.y"));
        for none in [
            "",
            "a=1",
            "fermata_session=",
            "fermata_sessions=x",
            "xfermata_session=x",
        ] {
            assert_eq!(read(none), None, "{none}");
        }
    }
}
