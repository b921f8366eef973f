//! The address guard: requests go to public addresses only, unless the settings allow private networks.
//!
//! The URL of a workflow may come from anywhere, and the engine runs inside a network that the authors of workflows may not
//! have access to. So an address is checked at the last moment before a connection is made:
//!
//! | the URL's host is | checked by | when |
//! | --- | --- | --- |
//! | an IP literal, in any spelling | [`Guard::check`] | before each hop; the connector does not resolve it |
//! | a name | [`GuardedResolver`] | at each lookup; the connector gets checked addresses only |
//!
//! Connections go to the address that was checked: a name is not resolved a second time, so DNS rebinding has no effect. A
//! kept connection was made by the same client under the same guard; clients are never shared between guards. There is no
//! proxy that could resolve names itself. Stand-ins ([`super::HttpSettings::stand_ins`]) are addresses on which the program
//! itself listens; only they pass unchecked.
//!
//! Refused addresses are those of the IANA special-purpose registries. Of IPv6 only global unicast (2000::/3) passes.
//! IPv4-mapped, NAT64 and 6to4 addresses are treated like the IPv4 address that they contain.

use async_trait::async_trait;
use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::Name;
use std::{
    error::Error,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    task::{Context, Poll},
    vec,
};
use tower_service::Service;
use url::Url;

/// Which addresses requests may go to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guard {
    /// The kind of this address, if it is refused.
    refusal: fn(IpAddr) -> Option<&'static str>,
}

/// A host that requests must not go to.
///
/// It names the host and the kind of address, not the address: authors of workflows must not learn what internal names resolve
/// to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{host}` {verb} a private address ({kind}); the operator can allow such calls with \
     `allow_private_networks = true` under `[http]`"
)]
pub(super) struct Refused {
    host: String,
    verb: &'static str,
    kind: &'static str,
}

impl Guard {
    /// Refuses all addresses that are not public.
    pub(super) const PUBLIC: Guard = Guard::new(special_purpose);
    /// Refuses nothing.
    pub(super) const OPEN: Guard = Guard::new(|_| None);

    pub(super) const fn new(refusal: fn(IpAddr) -> Option<&'static str>) -> Self {
        Guard { refusal }
    }

    /// Checks a URL whose host is an IP literal; names are checked when they are resolved.
    ///
    /// `Url` has normalized every spelling (`0x7f.1`, `2130706433`, `127.1.`, …), so this sees a literal exactly when the
    /// connector does.
    pub(super) fn check(self, url: &Url) -> Result<(), Refused> {
        let host = url.host_str().unwrap_or_default();
        let literal = host.trim_start_matches('[').trim_end_matches(']');
        let kind = literal.parse().ok().and_then(self.refusal);
        kind.map_or(Ok(()), |kind| Err(refused(host, "is", kind)))
    }

    /// The addresses of a name that may be called; an error if it has addresses and none may be called.
    fn permitted(self, host: &str, addresses: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Refused> {
        let mut last = None;
        let permitted: Vec<_> = addresses
            .into_iter()
            .filter(|address| match (self.refusal)(address.ip()) {
                None => true,
                kind => {
                    last = kind;
                    false
                }
            })
            .collect();
        match last {
            Some(kind) if permitted.is_empty() => Err(refused(host, "resolves to", kind)),
            _ => Ok(permitted),
        }
    }
}

fn refused(host: &str, verb: &'static str, kind: &'static str) -> Refused {
    Refused {
        host: host.to_owned(),
        verb,
        kind,
    }
}

/// Resolves names.
#[async_trait]
pub(super) trait Lookup: Send + Sync + 'static {
    /// All addresses of a name; ports are ignored.
    async fn lookup(&self, host: &str) -> io::Result<Vec<SocketAddr>>;
}

/// The resolver of the operating system.
pub(super) struct SystemLookup;

#[async_trait]
impl Lookup for SystemLookup {
    async fn lookup(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.collect())
    }
}

/// Returns only addresses that the guard permits.
#[derive(Clone)]
pub(super) struct GuardedResolver {
    pub(super) guard: Guard,
    pub(super) lookup: Arc<dyn Lookup>,
    /// Names whose addresses this process has set itself; documents cannot add any.
    pub(super) stand_ins: Vec<(String, SocketAddr)>,
}

impl Service<Name> for GuardedResolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        if let Some((_, address)) = self.stand_ins.iter().find(|(host, _)| host == name.as_str()) {
            let addresses = vec![*address];
            return Box::pin(std::future::ready(Ok(addresses.into_iter())));
        }
        let (guard, lookup) = (self.guard, self.lookup.clone());
        Box::pin(async move {
            let addresses = lookup.lookup(name.as_str()).await?;
            Ok(guard.permitted(name.as_str(), addresses)?.into_iter())
        })
    }
}

/// Whether a URL leads to one of these names.
pub(super) fn is_stand_in(stand_ins: &[(String, SocketAddr)], url: &Url) -> bool {
    stand_ins.iter().any(|(host, _)| url.host_str() == Some(host))
}

/// The kind of a special-purpose address; `None` if it is public.
fn special_purpose(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

type Block<Address> = (Address, u32, &'static str);

const fn v4(a: u8, b: u8, c: u8, d: u8) -> Ipv4Addr {
    Ipv4Addr::new(a, b, c, d)
}

const V4: [Block<Ipv4Addr>; 18] = [
    (v4(0, 0, 0, 0), 8, "unspecified"),
    (v4(10, 0, 0, 0), 8, "private network"),
    (v4(100, 100, 100, 200), 32, "cloud metadata"),
    (v4(100, 64, 0, 0), 10, "carrier-grade NAT"),
    (v4(127, 0, 0, 0), 8, "loopback"),
    // Azure's host agent has a public address in every virtual machine.
    (v4(168, 63, 129, 16), 32, "cloud metadata"),
    (v4(169, 254, 169, 254), 32, "cloud metadata"),
    (v4(169, 254, 0, 0), 16, "link-local"),
    (v4(172, 16, 0, 0), 12, "private network"),
    (v4(192, 0, 0, 0), 24, "protocol assignments"),
    (v4(192, 0, 2, 0), 24, "documentation"),
    (v4(192, 88, 99, 0), 24, "6to4 relay"),
    (v4(192, 168, 0, 0), 16, "private network"),
    (v4(198, 18, 0, 0), 15, "benchmarking"),
    (v4(198, 51, 100, 0), 24, "documentation"),
    (v4(203, 0, 113, 0), 24, "documentation"),
    (v4(224, 0, 0, 0), 4, "multicast"),
    // Includes the broadcast address.
    (v4(240, 0, 0, 0), 4, "reserved"),
];

fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    let holds = |(net, length, _): &&Block<Ipv4Addr>| (net.to_bits() ^ address.to_bits()).leading_zeros() >= *length;
    V4.iter().find(holds).map(|(_, _, kind)| *kind)
}

const fn v6(a: u16, b: u16, c: u16, h: u16) -> Ipv6Addr {
    Ipv6Addr::new(a, b, c, 0, 0, 0, 0, h)
}

const V6: [Block<Ipv6Addr>; 14] = [
    (v6(0, 0, 0, 0), 128, "unspecified"),
    (v6(0, 0, 0, 1), 128, "loopback"),
    (v6(0, 0, 0, 0), 96, "IPv4-compatible"),
    (v6(0x64, 0xff9b, 1, 0), 48, "local NAT64"),
    (v6(0x2001, 0, 0, 0), 32, "Teredo"),
    (v6(0x2001, 2, 0, 0), 48, "benchmarking"),
    (v6(0x2001, 0, 0, 0), 23, "protocol assignments"),
    (v6(0x2001, 0xdb8, 0, 0), 32, "documentation"),
    (v6(0x3fff, 0, 0, 0), 20, "documentation"),
    (v6(0xfd00, 0xec2, 0, 0x254), 128, "cloud metadata"),
    (v6(0xfc00, 0, 0, 0), 7, "unique-local"),
    (v6(0xfe80, 0, 0, 0), 10, "link-local"),
    (v6(0xfec0, 0, 0, 0), 10, "site-local"),
    (v6(0xff00, 0, 0, 0), 8, "multicast"),
];

const GLOBAL_UNICAST: (Ipv6Addr, u32) = (v6(0x2000, 0, 0, 0), 3);

fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    if let Some(carried) = carried_v4(address) {
        return special_v4(carried);
    }
    let within = |net: Ipv6Addr, length| (net.to_bits() ^ address.to_bits()).leading_zeros() >= length;
    if let Some((_, _, kind)) = V6.iter().find(|(net, length, _)| within(*net, *length)) {
        return Some(kind);
    }
    let (net, length) = GLOBAL_UNICAST;
    (!within(net, length)).then_some("reserved")
}

/// The IPv4 address that packets to this address reach.
fn carried_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match (address.segments(), address.octets()) {
        // IPv4-mapped; NAT64, by which IPv6-only networks reach all of IPv4.
        ([0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..], [.., a, b, c, d]) => Some(v4(a, b, c, d)),
        // 6to4.
        ([0x2002, ..], [_, _, a, b, c, d, ..]) => Some(v4(a, b, c, d)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every address as the host of a URL, and the kind it is refused as.
    const REFUSED: &[(&str, &str)] = &[
        // The spellings of one address.
        ("127.0.0.1", "loopback"),
        ("2130706433", "loopback"),
        ("0x7f000001", "loopback"),
        ("017700000001", "loopback"),
        ("0177.0.0.1", "loopback"),
        ("0x7f.1", "loopback"),
        ("0X7F.0x0.0.01", "loopback"),
        ("127.1", "loopback"),
        ("127.0.1", "loopback"),
        ("127.0.0.1.", "loopback"),
        ("127.1.", "loopback"),
        ("%31%32%37.0.0.1", "loopback"),
        ("127。0。0。1", "loopback"),
        ("127.0.0.1", "loopback"),
        ("①②⑦.⓪.⓪.①", "loopback"),
        ("user:secret@127.0.0.1", "loopback"),
        ("example.com@127.0.0.1", "loopback"),
        ("example.com:80@127.0.0.1:80", "loopback"),
        ("127.0.0.1\\@example.com", "loopback"),
        ("127.0.0.1#@example.com", "loopback"),
        ("127.0.0.1?@example.com", "loopback"),
        ("12\t7.0.0.1", "loopback"),
        ("127.0.0.1:8080", "loopback"),
        ("[::1]", "loopback"),
        ("[0:0:0:0:0:0:0:1]", "loopback"),
        ("[0000:0000::0001]:443", "loopback"),
        // IPv4 inside IPv6.
        ("[::ffff:127.0.0.1]", "loopback"),
        ("[::ffff:7f00:1]", "loopback"),
        ("[::FFFF:10.1.2.3]", "private network"),
        ("[::ffff:169.254.169.254]", "cloud metadata"),
        ("[::127.0.0.1]", "IPv4-compatible"),
        ("[::8.8.8.8]", "IPv4-compatible"),
        ("[64:ff9b::127.0.0.1]", "loopback"),
        ("[64:ff9b::a9fe:a9fe]", "cloud metadata"),
        ("[64:ff9b:1::1]", "local NAT64"),
        ("[2002:7f00:1::]", "loopback"),
        ("[2002:a00:1::1]", "private network"),
        ("[2001:0:102:304:0:0:80ff:fffe]", "Teredo"),
        ("[::ffff:0:127.0.0.1]", "reserved"),
        // The blocks, at both ends.
        ("0", "unspecified"),
        ("0.255.255.255", "unspecified"),
        ("10.0.0.0", "private network"),
        ("10.255.255.255", "private network"),
        ("100.64.0.0", "carrier-grade NAT"),
        ("100.127.255.255", "carrier-grade NAT"),
        ("100.100.100.200", "cloud metadata"),
        ("127.255.255.255", "loopback"),
        ("168.63.129.16", "cloud metadata"),
        ("169.254.0.0", "link-local"),
        ("169.254.255.255", "link-local"),
        ("169.254.169.254", "cloud metadata"),
        ("0xA9FEA9FE", "cloud metadata"),
        ("172.16.0.0", "private network"),
        ("172.31.255.255", "private network"),
        ("192.0.0.192", "protocol assignments"),
        ("192.0.2.1", "documentation"),
        ("192.88.99.1", "6to4 relay"),
        ("192.168.0.0", "private network"),
        ("192.168.255.255", "private network"),
        ("198.18.0.0", "benchmarking"),
        ("198.19.255.255", "benchmarking"),
        ("198.51.100.7", "documentation"),
        ("203.0.113.7", "documentation"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.255", "multicast"),
        ("240.0.0.0", "reserved"),
        ("255.255.255.255", "reserved"),
        ("[::]", "unspecified"),
        ("[100::1]", "reserved"),
        ("[2001:2::1]", "benchmarking"),
        ("[2001:10::1]", "protocol assignments"),
        ("[2001:1ff:ffff::1]", "protocol assignments"),
        ("[2001:db8::1]", "documentation"),
        ("[3fff:fff::1]", "documentation"),
        ("[4000::1]", "reserved"),
        ("[5f00::1]", "reserved"),
        ("[fc00::1]", "unique-local"),
        ("[fdff:ffff::1]", "unique-local"),
        ("[fd00:ec2::254]", "cloud metadata"),
        ("[fd20:ce::254]", "unique-local"),
        ("[fe80::1]", "link-local"),
        ("[febf::1]", "link-local"),
        ("[fec0::1]", "site-local"),
        ("[ff02::1]", "multicast"),
    ];

    const PUBLIC: &[&str] = &[
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "168.63.129.17",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "16843009",
        "[2001:200::1]",
        "[2001:4860:4860::8888]",
        "[2606:4700::1111]",
        "[::ffff:1.1.1.1]",
        "[64:ff9b::1.1.1.1]",
        "[2002:101:101::1]",
    ];

    fn url(host: &str) -> Url {
        Url::parse(&format!("http://{host}/")).unwrap_or_else(|error| panic!("{host}: {error}"))
    }

    #[test]
    fn literals_are_checked_in_every_spelling() {
        for (host, kind) in REFUSED {
            let refused = Guard::PUBLIC.check(&url(host)).expect_err(host);
            assert_eq!(refused.kind, *kind, "{host}");
            assert_eq!(Guard::OPEN.check(&url(host)), Ok(()), "{host}");
        }
        for host in PUBLIC {
            assert_eq!(Guard::PUBLIC.check(&url(host)), Ok(()), "{host}");
        }
    }

    #[test]
    fn names_are_checked_by_the_resolver_and_invalid_hosts_are_no_urls() {
        for name in [
            "localhost",
            "metadata.google.internal",
            "127.0.0.1.nip.io",
            "1.2.3.4.5.x",
        ] {
            assert_eq!(Guard::PUBLIC.check(&url(name)), Ok(()), "{name}");
        }
        for nonsense in ["1.2.3.4.5", "256.0.0.1", "[fe80::1%25eth0]", "[::ffff:127.1]"] {
            assert!(Url::parse(&format!("http://{nonsense}/")).is_err(), "{nonsense}");
        }
    }

    fn addresses(list: &[&str]) -> Vec<SocketAddr> {
        list.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 0)).collect()
    }

    #[test]
    fn only_public_addresses_of_a_name_are_used() {
        let permitted = |list: &[&str]| Guard::PUBLIC.permitted("name", addresses(list));
        assert_eq!(
            permitted(&["10.0.0.1", "1.1.1.1", "::1", "2606:4700::1111"]),
            Ok(addresses(&["1.1.1.1", "2606:4700::1111"]))
        );
        assert_eq!(
            permitted(&[]),
            Ok(Vec::new()),
            "a name without addresses is not refused"
        );
        let refused = permitted(&["::1", "127.0.0.1"]).unwrap_err().to_string();
        assert!(
            refused.starts_with("`name` resolves to a private address (loopback)"),
            "{refused}"
        );
        assert!(refused.contains("`allow_private_networks = true`"), "{refused}");
        assert!(!refused.contains("127.0.0.1"), "{refused}");
    }
}
