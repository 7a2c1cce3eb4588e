//! Changes of custom metadata.

use std::collections::BTreeMap;

use forebay_core::Result;
use forebay_core::bucket::BucketInfo;
use forebay_core::bucket_access::BucketChange;
use forebay_core::object::is_system_key;
use forebay_store::{Record, RecordMeta};
use forebay_v1::custom::check_custom;

use super::Writes;
use crate::object::Key;
use crate::object::replication::MetadataChange;

impl Writes {
    /// Adds to the custom metadata of an object (or replaces all of it).
    pub(crate) async fn set_custom(
        &self,
        info: &BucketInfo,
        name: &str,
        pairs: BTreeMap<String, String>,
        replace: bool,
    ) -> Result<()> {
        info.check_access(BucketChange::Put)?;
        let is_user = |key: &str| !is_system_key(key);
        let added = pairs.clone();
        let check = move |record: &Record| {
            if !added.keys().any(|key| is_user(key)) {
                return Ok(());
            }
            let kept = record.meta.custom.iter().filter(|_| !replace);
            let all = kept.chain(&added).filter(|(key, _)| is_user(key));
            check_custom(&all.map(|(key, value)| (key.clone(), value.clone())).collect())
        };
        let change = move |meta: &mut RecordMeta| {
            if replace {
                meta.custom.retain(|key, _| is_system_key(key));
            }
            meta.custom.extend(pairs);
        };
        if info.has_backend() {
            let _guard = self.local().locks.lock(&Key::new(info, name)).await;
            let record = self.store().get(info.id, name).await?;
            let record = record.ok_or_else(|| self.local().missing(info, name))?;
            check(&record)?;
            return self.store().update(&record, change).await.map(drop);
        }
        let change = MetadataChange { check: Box::new(check), change: Box::new(change) };
        let updated = self.replication().update(info, name, change).await?;
        updated.map(drop).ok_or_else(|| self.local().missing(info, name))
    }
}
