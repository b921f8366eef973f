//! TLS connections. `sslmode` has the same meaning as in libpq.
//!
//! | sslmode | encrypted | the server's certificate |
//! | --- | --- | --- |
//! | `disable` | no | |
//! | `prefer` (the default) | if the server can | not checked |
//! | `require` | yes | not checked, unless `sslrootcert` is given: then as `verify-ca` |
//! | `verify-ca` | yes | issued by an authority in `sslrootcert`, or itself contained in `sslrootcert` |
//! | `verify-full` | yes | as `verify-ca`, and `subjectAltName` must match the host |
//!
//! `sslrootcert` is a PEM file or `system`; without it, `verify-…` uses the authorities that the system trusts. `sslcert`
//! and `sslkey` are the certificate and key of the client. What must stay true: `verify-full` never accepts a certificate
//! that this table does not allow.

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};
use std::{error::Error as _, io, sync::Arc};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

/// The TLS options of an address.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct TlsOptions {
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

impl TlsOptions {
    /// The mode for the driver, and the connector that checks the server's certificate. The error describes an invalid
    /// option.
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
                    "`sslmode={other}` is not supported; use disable, prefer, require, verify-ca or verify-full"
                ));
            }
        };
        let provider = Arc::new(ring::default_provider());
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
            _ => return Err("`sslcert` and `sslkey` must be given together".to_owned()),
        };
        Ok((mode, MakeRustlsConnect::new(config)))
    }
}

/// The message for a connection that failed because the server's certificate was refused. A retry does not help then.
pub(super) fn distrust(error: &tokio_postgres::Error) -> Option<String> {
    let cause = error.source()?.downcast_ref::<io::Error>()?.get_ref()?;
    let Some(Error::InvalidCertificate(why)) = cause.downcast_ref() else {
        return None;
    };
    let why = match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its issuer is not trusted; give the certificate of the issuer with sslrootcert=FILE".to_owned()
        }
        CertificateError::Other(_) => {
            format!("{why}; a self-signed certificate is accepted if sslrootcert=FILE contains it")
        }
        _ => why.to_string(),
    };
    Some(format!("the server's certificate is refused: {why}"))
}

fn certificates(option: &str, file: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(list) if list.is_empty() => Err(format!("{option} {file}: the file contains no certificate")),
        Ok(list) => Ok(list),
        Err(error) => Err(format!("{option} {file}: {error}")),
    }
}

/// The certificates of `sslrootcert`; empty if those of the system are to be used.
fn root_certificates(file: Option<&str>) -> Result<Vec<CertificateDer<'static>>, String> {
    match file {
        None | Some("system") => Ok(Vec::new()),
        Some(file) => certificates("sslrootcert", file),
    }
}

fn roots(given: &[CertificateDer<'static>]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in given {
        let added = roots.add(certificate.clone());
        added.map_err(|error| format!("sslrootcert: {error}"))?;
    }
    if given.is_empty() {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    match roots.is_empty() {
        true => Err("this system has no trusted certificate authorities; give one with sslrootcert=FILE".to_owned()),
        false => Ok(roots),
    }
}

/// Checks the server's certificate as `sslmode` requires. That the server has the private key is always checked.
#[derive(Debug)]
struct Verifier {
    check: Check,
    given: Vec<CertificateDer<'static>>,
    inner: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(check: Check, file: Option<&str>, provider: Arc<CryptoProvider>) -> Result<Verifier, String> {
        let given = root_certificates(file)?;
        let inner = match check {
            Check::Nothing => None,
            Check::Authority | Check::Everything => {
                let roots = Arc::new(roots(&given)?);
                let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
                Some(verifier.map_err(|error| error.to_string())?)
            }
        };
        Ok(Verifier {
            check,
            given,
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
        // A self-signed certificate is accepted if `sslrootcert` contains it. Its validity period was already checked:
        // an invalid period would have caused another error.
        let self_signed = matches!(verdict, Err(Error::InvalidCertificate(CertificateError::Other(_))));
        if self_signed && self.given.iter().any(|given| given == end_entity) {
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
