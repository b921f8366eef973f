//! Which request gets the next slot.

use super::*;

fn behalf<'a>(tenant: &'a str, workflow: &'a str, priority: i32) -> Behalf<'a> {
    Behalf {
        tenant,
        workflow,
        priority,
    }
}

fn slots(count: usize) -> Arc<Slots> {
    Slots::new(count, Arc::default())
}

/// Requests `count` slots; returns those that were granted at once, and the waiters.
fn ask(slots: &Arc<Slots>, count: usize, tenant: &str, workflow: &str) -> (Vec<Slot>, Vec<Waiter>) {
    let (mut given, mut waiting) = (Vec::new(), Vec::new());
    for _ in 0..count {
        match slots.take(behalf(tenant, workflow, 0)) {
            Ok(slot) => given.push(slot),
            Err(waiter) => waiting.push(waiter),
        }
    }
    (given, waiting)
}

/// Moves granted slots from the waiters to `held`.
fn collect(waiting: &mut Vec<Waiter>, held: &mut Vec<Slot>) -> usize {
    let before = held.len();
    waiting.retain_mut(|waiter| match waiter.try_slot() {
        Some(slot) => {
            held.push(slot);
            false
        }
        None => true,
    });
    held.len() - before
}

/// The order in which waiters get the only slot.
fn order(waiting: &[(&str, &str, i32)]) -> Vec<usize> {
    let slots = slots(1);
    let mut held = slots.take(behalf("", "", 0)).ok();
    let mut waiters: Vec<_> = waiting
        .iter()
        .map(|(tenant, workflow, priority)| slots.take(behalf(tenant, workflow, *priority)).err())
        .collect();
    let mut order = Vec::new();
    while order.len() < waiting.len() {
        drop(held.take().expect("a slot was granted"));
        for (index, waiter) in waiters.iter_mut().enumerate() {
            if let Some(slot) = waiter.as_mut().and_then(Waiter::try_slot) {
                held = Some(slot);
                *waiter = None;
                order.push(index);
            }
        }
    }
    order
}

#[test]
fn oldest_request_is_served_first() {
    assert_eq!(order(&[("", "w", 0), ("", "w", 0), ("", "w", 0)]), [0, 1, 2]);
}

#[test]
fn priority_counts_only_within_a_workflow() {
    let waiting = [("", "a", 0), ("", "a", -1), ("", "a", 9), ("", "b", -9), ("", "b", -9)];
    assert_eq!(order(&waiting), [2, 3, 0, 4, 1]);
}

#[test]
fn workflows_of_a_tenant_are_served_in_rotation() {
    let waiting = [("", "a", 0), ("", "a", 0), ("", "a", 0), ("", "b", 0), ("", "c", 0)];
    assert_eq!(order(&waiting), [0, 3, 4, 1, 2]);
}

#[test]
fn tenant_with_many_workflows_gets_no_larger_share() {
    let waiting = [
        ("t", "a", 0),
        ("t", "b", 0),
        ("t", "c", 0),
        ("u", "a", 0),
        ("u", "a", 0),
    ];
    assert_eq!(order(&waiting), [0, 3, 1, 4, 2]);
}

#[test]
fn workflow_with_many_tenants_gets_no_larger_share() {
    let tenants: Vec<String> = (0..320).map(|tenant| format!("invented-{tenant}")).collect();
    let mut waiting: Vec<_> = tenants.iter().map(|tenant| (tenant.as_str(), "flood", 0)).collect();
    waiting.extend([("honest", "own", 0), ("honest", "own", 0)]);
    let order = order(&waiting);
    let places = [320, 321].map(|index| order.iter().position(|served| *served == index).unwrap());
    assert!(places[1] < 5, "served at {places:?}");
}

#[test]
fn group_holds_all_slots_alone_and_half_while_another_waits() {
    let slots = slots(100);
    let (mut large, mut large_waits) = ask(&slots, 300, "large", "a");
    assert_eq!(
        (large.len(), large_waits.len()),
        (100, 200),
        "while no other waits it may use all slots"
    );
    let (mut small, mut small_waits) = ask(&slots, 300, "small", "b");
    assert_eq!(small.len(), 1, "the reserve has one slot for a group without slots");
    // Released slots go to the other group until both hold half.
    while small.len() < 50 {
        drop(large.pop());
        collect(&mut small_waits, &mut small);
        assert_eq!(collect(&mut large_waits, &mut large), 0);
    }
    assert_eq!((large.len(), small.len()), (50, 50));
    for _ in 0..10 {
        drop(large.pop());
        drop(small.pop());
        collect(&mut small_waits, &mut small);
        collect(&mut large_waits, &mut large);
        assert_eq!((large.len(), small.len()), (50, 50));
    }
    // When the other group no longer waits, the first uses all slots again.
    drop(small_waits);
    small.clear();
    collect(&mut large_waits, &mut large);
    assert_eq!(large.len(), 100);
}

#[test]
fn group_without_slots_does_not_wait_for_slots_that_hang() {
    let slots = slots(10);
    let (_hanging, _waits) = ask(&slots, 12, "one", "hang");
    for _ in 0..20 {
        assert!(slots.has_room_for(behalf("other", "quick", 0)));
        let (given, waits) = ask(&slots, 3, "other", "quick");
        assert_eq!((given.len(), waits.len()), (1, 2), "one at a time");
    }
    assert!(!slots.has_room_for(behalf("one", "hang", 0)));
}

#[test]
fn new_tenant_of_a_workflow_and_new_workflow_of_a_tenant_may_use_the_reserve() {
    let slots = slots(100);
    let (_hanging, _waits) = ask(&slots, 200, "one", "hang");
    assert_eq!(ask(&slots, 1, "other", "hang").0.len(), 1);
    assert_eq!(ask(&slots, 1, "one", "quick").0.len(), 1);
}

#[test]
fn invented_tenants_and_workflows_leave_half_of_the_reserve() {
    let slots = slots(100);
    let (_hanging, _waits) = ask(&slots, 100, "one", "hang");
    let mut held = Vec::new();
    for invented in 0..320 {
        held.push(ask(&slots, 1, &format!("t{invented}"), "hang"));
        held.push(ask(&slots, 1, "one", &format!("w{invented}")));
    }
    let given: usize = held.iter().map(|(given, _)| given.len()).sum();
    assert_eq!(given, 5);
    assert_eq!(ask(&slots, 1, "honest", "own").0.len(), 1);
}

#[test]
fn waiter_of_a_busy_group_does_not_block_one_that_may_use_the_reserve() {
    let slots = slots(10);
    let (mut busy, _busy_waits) = ask(&slots, 5, "busy", "b");
    let (_rest, _rest_waits) = ask(&slots, 9, "one", "hang");
    let (_first, first_waits) = ask(&slots, 1, "first", "hang");
    let (_second, mut second_waits) = ask(&slots, 1, "second", "hang");
    assert_eq!(
        (first_waits.len(), second_waits.len()),
        (0, 1),
        "half of the reserve is one"
    );
    let (_more, mut more_waits) = ask(&slots, 1, "busy", "b");
    drop(busy.pop());
    let mut held = Vec::new();
    assert_eq!(collect(&mut second_waits, &mut held), 1);
    assert_eq!(collect(&mut more_waits, &mut held), 0);
}

#[test]
fn single_slot_has_no_reserve() {
    assert_eq!([1, 2, 3, 4, 10, 100, 1000].map(reserve_of), [0, 1, 1, 2, 2, 10, 100]);
}

#[test]
fn dropped_waiter_is_removed() {
    let slots = slots(1);
    let (first, leave) = ask(&slots, 100_001, "", "w");
    let (_, mut stays) = ask(&slots, 1, "", "w");
    drop(leave);
    assert_eq!(slots.state().lines.values().map(BTreeMap::len).sum::<usize>(), 1);
    drop(first);
    let mut held = Vec::new();
    assert_eq!(collect(&mut stays, &mut held), 1);
    // A waiter that was granted a slot and dropped without taking it.
    let (_, unseen) = ask(&slots, 1, "", "w");
    held.clear();
    assert_eq!(slots.idle(), 0);
    drop(unseen);
    assert_eq!(slots.idle(), 1);
    assert!(slots.state().tenants.is_empty() && slots.state().workflows.is_empty());
}
