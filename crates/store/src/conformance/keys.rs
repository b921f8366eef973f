//! API keys.

use super::*;
use crate::keys::{ApiKey, KeyFilter};

pub(crate) fn api_key(number: u128, tenant: &str) -> ApiKey {
    ApiKey {
        id: Uuid::from_u128(number),
        name: format!("key {number}"),
        tenant: tenant.to_owned(),
        scopes: "workflows:execute workflows:read".to_owned(),
        hash: format!("{number:064x}"),
        created_at: at(5),
        created_by: "ada".to_owned(),
        expires_at: Some(at(500)),
        revoked_at: None,
    }
}

/// A key is stored once, and found by its id.
pub async fn keys_are_stored_and_found(subject: &Subject) {
    let store: &Arc<dyn Store> = subject;
    let key = api_key(1, "acme");
    store.add_api_key(key.clone()).await.unwrap();
    let again = ApiKey {
        scopes: "admin".to_owned(),
        ..key.clone()
    };
    store.add_api_key(again).await.unwrap();
    assert_eq!(store.api_key(key.id).await.unwrap(), Some(key));
    assert_eq!(store.api_key(Uuid::from_u128(2)).await.unwrap(), None);
    let eternal = ApiKey {
        expires_at: None,
        ..api_key(3, "")
    };
    store.add_api_key(eternal.clone()).await.unwrap();
    assert_eq!(store.api_key(eternal.id).await.unwrap(), Some(eternal));
}

/// A revoked key stays listed. Only its tenant, or a caller without a tenant, revokes it.
pub async fn keys_are_revoked_once(subject: &Subject) {
    let store: &Arc<dyn Store> = subject;
    let key = api_key(1, "acme");
    store.add_api_key(key.clone()).await.unwrap();
    assert!(!store.revoke_api_key(Uuid::from_u128(2), None, at(9)).await.unwrap());
    for other in ["", "other", "ac\0me"] {
        assert!(
            !store.revoke_api_key(key.id, Some(other), at(9)).await.unwrap(),
            "{other}"
        );
    }
    assert_eq!(store.api_key(key.id).await.unwrap(), Some(key.clone()));
    assert!(store.revoke_api_key(key.id, Some("acme"), at(10)).await.unwrap());
    assert!(store.revoke_api_key(key.id, None, at(11)).await.unwrap());
    let revoked = ApiKey {
        revoked_at: Some(at(10)),
        ..key
    };
    assert_eq!(store.api_key(revoked.id).await.unwrap(), Some(revoked));
}

/// Lists are newest first, by tenant if one is named, and paged.
pub async fn keys_are_listed_by_tenant(subject: &Subject) {
    let store: &Arc<dyn Store> = subject;
    for (number, tenant) in [(1, ""), (2, "acme"), (3, "other"), (4, "acme"), (5, "acme")] {
        store.add_api_key(api_key(number, tenant)).await.unwrap();
    }
    let list = async |tenant: Option<&str>, before: Option<u128>, limit| {
        let filter = KeyFilter {
            tenant: tenant.map(str::to_owned),
            before: before.map(Uuid::from_u128),
            limit,
        };
        let page = store.api_keys(filter).await.unwrap();
        let ids: Vec<u128> = page.items.iter().map(|key| key.id.as_u128()).collect();
        (ids, page.more)
    };
    assert_eq!(list(None, None, 9).await, (vec![5, 4, 3, 2, 1], false));
    assert_eq!(list(None, Some(4), 2).await, (vec![3, 2], true));
    assert_eq!(list(Some("acme"), None, 2).await, (vec![5, 4], true));
    assert_eq!(list(Some("acme"), Some(4), 2).await, (vec![2], false));
    assert_eq!(list(Some(""), None, 9).await, (vec![1], false));
    assert_eq!(list(Some("none\0"), None, 9).await, (vec![], false));
}
