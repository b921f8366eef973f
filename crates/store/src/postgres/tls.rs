//! Encrypted connections, with the meaning that libpq gives to `sslmode`.
//!
//! | sslmode | encrypted | the server's certificate |
//! | --- | --- | --- |
//! | `disable` | no | |
//! | `prefer` (the default) | if the server can | not checked |
//! | `require` | yes | not checked, unless `sslrootcert` is given: then as `verify-ca` |
//! | `verify-ca` | yes | made by an authority of `sslrootcert` |
//! | `verify-full` | yes | the same, and for this host |
//!
//! `sslrootcert` is a PEM file, or `system`; without it `verify-…` trusts what the system trusts. `sslcert` and
//! `sslkey` are the client's own certificate. What must stay true: `verify-full` never accepts less than it says.

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};
use std::sync::Arc;
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

fn certificates(option: &str, file: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(list) if list.is_empty() => Err(format!("{option} {file}: there is no certificate in it")),
        Ok(list) => Ok(list),
        Err(error) => Err(format!("{option} {file}: {error}")),
    }
}

fn roots(file: Option<&str>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match file {
        None | Some("system") => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
        Some(file) => {
            for certificate in certificates("sslrootcert", file)? {
                roots
                    .add(certificate)
                    .map_err(|error| format!("sslrootcert {file}: {error}"))?;
            }
        }
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
    inner: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(check: Check, root_certificates: Option<&str>, provider: Arc<CryptoProvider>) -> Result<Verifier, String> {
        let inner = match check {
            Check::Nothing => None,
            Check::Authority | Check::Everything => {
                let roots = Arc::new(roots(root_certificates)?);
                let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
                Some(verifier.map_err(|error| error.to_string())?)
            }
        };
        Ok(Verifier { check, inner, provider })
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
        match inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
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
