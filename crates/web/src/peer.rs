//! The address of the client of a connection, which every request of the connection gets.

use hyper::{Request, body::Incoming, service::Service};
use std::net::IpAddr;

/// The address of the client, or of the proxy before this server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub IpAddr);

/// The service of one connection.
#[derive(Clone)]
pub(crate) struct WithPeer<S> {
    pub service: S,
    pub peer: Option<Peer>,
}

impl<S: Service<Request<Incoming>>> Service<Request<Incoming>> for WithPeer<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn call(&self, mut request: Request<Incoming>) -> S::Future {
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        self.service.call(request)
    }
}
