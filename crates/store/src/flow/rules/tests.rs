//! Cases of what a run gets. The conformance suite tests the same rules with stored rows.

use super::*;
use crate::flow::{Debounce, Key, Rate};
use uuid::Uuid;

fn key(name: &str) -> Key {
    Key {
        key: name.to_owned(),
        value: String::new(),
    }
}

fn run(number: u128) -> RunId {
    RunId(Uuid::from_u128(number))
}

#[test]
fn windows_are_filled_one_after_another() {
    let flow = Flow {
        rate: Some(Rate {
            key: key("r"),
            limit: 2,
            period_ms: 1,
        }),
        ..Flow::default()
    };
    let mut rows = KeyRows::new();
    let begins = [
        (500, None),
        (600, None),
        (700, Some(1000)),
        (999, Some(1000)),
        (999, Some(2000)),
        (2500, None),
    ];
    for (now, expected) in begins {
        let Asked::Stored(granted) = ask(&flow, run(1), None, true, None, Timestamp(now), &mut rows) else {
            panic!("{now}");
        };
        assert_eq!(granted.delayed_until, expected.map(Timestamp), "{now}");
        assert_eq!(granted.step == FlowStep::Rate, expected.is_some());
    }
}

#[test]
fn max_bounds_the_quiet_time() {
    for (quiet_ms, max_ms, first, then) in [
        (10, None, 10_000, 15_000),
        (10, Some(12), 10_000, 12_000),
        (10, Some(4), 4_000, 5_000),
    ] {
        let debounce = Debounce {
            key: key("d"),
            quiet_ms,
            max_ms,
        };
        let flow = Flow {
            debounce: Some(debounce),
            ..Flow::default()
        };
        let mut rows = KeyRows::new();
        let Asked::Stored(granted) = ask(&flow, run(1), None, true, None, Timestamp(0), &mut rows) else {
            panic!("{max_ms:?}");
        };
        assert_eq!(granted.delayed_until, Some(Timestamp(first)));
        let merged = Asked::Merge {
            run: run(1),
            wake_at: Timestamp(then),
        };
        assert_eq!(
            ask(&flow, run(2), None, true, None, Timestamp(5_000), &mut rows),
            merged
        );
    }
}

#[test]
fn no_run_passes_those_that_wait() {
    let place = Place {
        key: key("k"),
        limit: 2,
        version: 1,
        refuse: false,
        tenant: false,
    };
    let flow = Flow {
        places: vec![place],
        ..Flow::default()
    };
    let row = KeyRow {
        held: 1,
        most: 2,
        version: 1,
        has_waiters: true,
        ..KeyRow::default()
    };
    let mut rows = KeyRows::from([("k".to_owned(), row)]);
    let Asked::Stored(granted) = ask(&flow, run(1), None, true, None, Timestamp(0), &mut rows) else {
        panic!();
    };
    assert_eq!(granted.waiting.as_deref(), Some("k"));
    assert_eq!(rows["k"].spare(), 1, "the free place is for the run that waits first");
}

/// The limit of a document is that of its active version, the limit of a tenant that of the configuration.
#[test]
fn runs_of_other_versions_set_only_the_limit_of_their_tenant() {
    for (tenant, is_current, most, expected) in [
        (false, true, 1, 2),
        (false, false, 1, 1),
        (false, false, 0, 2),
        (true, true, 1, 2),
        (true, false, 1, 2),
        (true, false, 3, 2),
    ] {
        let place = Place {
            key: key("k"),
            limit: 2,
            version: 1,
            refuse: false,
            tenant,
        };
        let flow = Flow {
            places: vec![place],
            ..Flow::default()
        };
        let row = KeyRow {
            held: 1,
            most,
            ..KeyRow::default()
        };
        let mut rows = KeyRows::from([("k".to_owned(), row)]);
        let asked = ask(&flow, run(1), None, is_current, None, Timestamp(0), &mut rows);
        let Asked::Stored(granted) = asked else {
            panic!("{asked:?}")
        };
        let case = format!("tenant {tenant}, current {is_current}, most {most}");
        assert_eq!((rows["k"].most, granted.held), (expected, expected - 1), "{case}");
    }
}
