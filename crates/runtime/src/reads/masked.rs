//! Replaces secrets in records before they are shown.

use super::Reads;
use crate::mask::Mask;
use fermata_store::{inbox::ItemPage, reads::RunRecord, runs::Attempt};
use std::borrow::Cow;

/// A record with JSON texts that may hold secrets.
pub(crate) trait Shown: Send + 'static {
    fn texts(&mut self) -> impl Iterator<Item = &mut Option<String>>;
}

impl Shown for RunRecord {
    fn texts(&mut self) -> impl Iterator<Item = &mut Option<String>> {
        [&mut self.outputs, &mut self.context_snapshot].into_iter()
    }
}

impl Shown for Vec<Attempt> {
    fn texts(&mut self) -> impl Iterator<Item = &mut Option<String>> {
        // Parameters are masked before they are stored, but earlier versions of this program did not do that.
        self.iter_mut()
            .flat_map(|action| [&mut action.parameters, &mut action.outputs])
    }
}

impl Shown for ItemPage {
    fn texts(&mut self) -> impl Iterator<Item = &mut Option<String>> {
        self.items.iter_mut().map(|item| &mut item.payload)
    }
}

impl Reads<'_> {
    /// The record with its secrets replaced. Large texts are masked on a blocking thread.
    pub(crate) async fn masked<T: Shown>(&self, mut shown: T) -> T {
        let bytes = shown.texts().flatten().map(|text| text.len()).sum();
        let shared = self.engine.shared.clone();
        let work = move || {
            replace(&shared.settings.mask, &mut shown);
            shown
        };
        self.engine.offload().run(bytes, work).await
    }
}

fn replace(mask: &Mask, shown: &mut impl Shown) {
    for text in shown.texts().flatten() {
        if let Cow::Owned(masked) = mask.of_text(text) {
            *text = masked;
        }
    }
}
