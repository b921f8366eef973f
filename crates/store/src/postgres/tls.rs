//! Encrypted connections, with the meaning that libpq gives to `sslmode`.
//!
//! | sslmode | encrypted | the server's certificate |
//! | --- | --- | --- |
//! | `disable` | no | |
//! | `prefer` (the default) | if the server can | not checked |
//! | `require` | yes | not checked, unless `sslrootcert` is given: then as `verify-ca` |
//! | `verify-ca` | yes | made by an authority of `sslrootcert`, or in there itself |
//! | `verify-full` | yes | the same, and for this host by its `subjectAltName` |
//!
//! `sslrootcert` is a PEM file, or `system`; without it `verify-…` trusts what the system trusts. `sslcert` and
//! `sslkey` are the client's own certificate. What must stay true: `verify-full` never accepts less than it says.

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};
use std::{error::Error as _, io, sync::Arc};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

/// What an address says about encryption.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct TlsWish {
    pub(super) mode: Option<String>,
    pub(super) root_certificates: Option<String>,
    pub(super) certificate: Option<String>,
    pub(super) key: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    Nothing,
    Authority,
    Everything,
}

impl TlsWish {
    /// How to ask the server, and how to check its answer. An error says what is wrong with the wish.
    pub(super) fn connector(&self) -> Result<(SslMode, MakeRustlsConnect), String> {
        let rooted = self.root_certificates.is_some();
        let (mode, check) = match self.mode.as_deref() {
            Some("disable") => (SslMode::Disable, Check::Nothing),
            None | Some("prefer") => (SslMode::Prefer, Check::Nothing),
            Some("require") if rooted => (SslMode::Require, Check::Authority),
            Some("require") => (SslMode::Require, Check::Nothing),
            Some("verify-ca") => (SslMode::Require, Check::Authority),
            Some("verify-full") => (SslMode::Require, Check::Everything),
            Some(other) => {
                return Err(format!(
                    "`sslmode={other}` is not known; use disable, prefer, require, verify-ca or verify-full"
                ));
            }
        };
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = Verifier::new(check, self.root_certificates.as_deref(), provider.clone())?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let config = match (&self.certificate, &self.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(certificate), Some(key)) => {
                let key = PrivateKeyDer::from_pem_file(key).map_err(|error| format!("sslkey {key}: {error}"))?;
                builder
                    .with_client_auth_cert(certificates("sslcert", certificate)?, key)
                    .map_err(|error| format!("sslcert {certificate}: {error}"))?
            }
            _ => return Err("`sslcert` and `sslkey` go together".to_owned()),
        };
        Ok((mode, MakeRustlsConnect::new(config)))
    }
}

/// In words, if there is no connection because the server's certificate was refused. Trying again does not help then.
pub(super) fn distrust(error: &tokio_postgres::Error) -> Option<String> {
    let cause = error.source()?.downcast_ref::<io::Error>()?.get_ref()?;
    let Some(Error::InvalidCertificate(why)) = cause.downcast_ref() else {
        return None;
    };
    let why = match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "no authority made it that is trusted here; name the one that did with sslrootcert=FILE".to_owned()
        }
        CertificateError::Other(_) => {
            format!("{why}; one that is its own authority is taken if it stands in sslrootcert=FILE")
        }
        _ => why.to_string(),
    };
    Some(format!("the server's certificate is refused: {why}"))
}

fn certificates(option: &str, file: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(list) if list.is_empty() => Err(format!("{option} {file}: there is no certificate in it")),
        Ok(list) => Ok(list),
        Err(error) => Err(format!("{option} {file}: {error}")),
    }
}

/// Those that were named, and not left to the system.
fn named(file: Option<&str>) -> Result<Vec<CertificateDer<'static>>, String> {
    match file {
        None | Some("system") => Ok(Vec::new()),
        Some(file) => certificates("sslrootcert", file),
    }
}

fn roots(named: &[CertificateDer<'static>]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in named {
        let added = roots.add(certificate.clone());
        added.map_err(|error| format!("sslrootcert: {error}"))?;
    }
    if named.is_empty() {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    match roots.is_empty() {
        true => Err("this system trusts no certificate authority; name one with sslrootcert=FILE".to_owned()),
        false => Ok(roots),
    }
}

/// Checks as much of a certificate as was asked for. That the server has the key to it is always checked.
#[derive(Debug)]
struct Verifier {
    check: Check,
    named: Vec<CertificateDer<'static>>,
    inner: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(check: Check, root_certificates: Option<&str>, provider: Arc<CryptoProvider>) -> Result<Verifier, String> {
        let named = named(root_certificates)?;
        let inner = match check {
            Check::Nothing => None,
            Check::Authority | Check::Everything => {
                let roots = Arc::new(roots(&named)?);
                let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
                Some(verifier.map_err(|error| error.to_string())?)
            }
        };
        Ok(Verifier {
            check,
            named,
            inner,
            provider,
        })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(inner) = &self.inner else {
            return Ok(ServerCertVerified::assertion());
        };
        let mut verdict = inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        // That a certificate is its own authority does not matter if it is the one that was named. Its dates are fine:
        // they are looked at first.
        let its_own = matches!(verdict, Err(Error::InvalidCertificate(CertificateError::Other(_))));
        if its_own && self.named.iter().any(|named| named == end_entity) {
            let names = verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name);
            verdict = names.map(|()| ServerCertVerified::assertion());
        }
        match verdict {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.check == Check::Authority => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
