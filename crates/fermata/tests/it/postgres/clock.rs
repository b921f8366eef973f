//! A process whose clock differs from its database's.

use super::PUBLIC_URL;
use crate::support::{Server, shared_home};

const WARNING: &str = "the clock of this machine differs from its database's";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_that_differs_by_more_than_a_second_is_logged_once() {
    let home = shared_home();
    let right = Server::on(&home, &[], &[PUBLIC_URL]);
    let mut wrong = Server::on(&home, &[], &[PUBLIC_URL, ("FERMATA_TEST_WRONG_CLOCK_S", "3600")]);
    let line = wrong.process().wait_for_line(WARNING);
    // The database is an hour behind, to the second.
    let ahead = line.split_once("database_ahead_ms=").and_then(|(_, rest)| {
        let digits: String = rest.chars().take_while(|c| *c == '-' || c.is_ascii_digit()).collect();
        digits.parse::<i64>().ok()
    });
    assert!(ahead.is_some_and(|ahead| ahead.abs_diff(-3_600_000) < 1000), "{line}");
    // It has sent several heartbeats by its end, and measured the clock with each.
    assert_eq!(wrong.stop(), Some(0));
    assert_eq!(wrong.process().log().matches(WARNING).count(), 1);
    assert!(!right.process().log().contains(WARNING), "{}", right.process().log());
}
