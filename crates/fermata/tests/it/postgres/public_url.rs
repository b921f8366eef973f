//! Processes with different callback addresses.

use super::PUBLIC_URL;
use crate::support::{Server, shared_home};

const WARNING: &str = "has another callback address";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_with_different_public_urls_log_a_warning() {
    let home = shared_home();
    let first = Server::on(&home, &[], &[PUBLIC_URL]);
    let same = Server::on(&home, &[], &[PUBLIC_URL]);
    let other = ("FERMATA_SERVER__PUBLIC_URL", "https://elsewhere.example");
    let second = Server::on(&home, &[], &[other]);
    let line = second.process().wait_for_line(WARNING);
    assert!(line.contains("fermata.example"), "{line}");
    for quiet in [first, same] {
        assert!(!quiet.process().log().contains(WARNING), "{}", quiet.process().log());
    }
}
