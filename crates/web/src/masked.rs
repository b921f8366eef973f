//! Outputs as they are shown: without secrets. What is stored keeps them, because later steps may need them.

use crate::Web;
use fermata_runtime::Mask;
use fermata_store::reads::{ActionRecord, RunRecord};

/// Larger texts are masked beside the threads that serve requests.
const SMALL: usize = 64 * 1024;

/// Something with outputs.
trait Shown: Send + 'static {
    fn texts(&mut self) -> impl Iterator<Item = &mut Option<String>>;
}

impl Shown for RunRecord {
    fn texts(&mut self) -> impl Iterator<Item = &mut Option<String>> {
        [&mut self.outputs, &mut self.context_snapshot].into_iter()
    }
}

impl Shown for Vec<ActionRecord> {
    fn texts(&mut self) -> impl Iterator<Item = &mut Option<String>> {
        // Parameters are stored without secrets, but not those of earlier versions of this program.
        self.iter_mut()
            .flat_map(|action| [&mut action.parameters, &mut action.outputs])
    }
}

/// A run without the secrets in its outputs.
pub(crate) async fn run(web: &Web, run: RunRecord) -> RunRecord {
    without_secrets(web, run).await
}

/// Attempts without the secrets in their parameters and outputs.
pub(crate) async fn actions(web: &Web, actions: Vec<ActionRecord>) -> Vec<ActionRecord> {
    without_secrets(web, actions).await
}

async fn without_secrets<T: Shown>(web: &Web, mut shown: T) -> T {
    let size = shown.texts().flatten().map(|text| text.len()).sum::<usize>();
    if size <= SMALL {
        mask(&web.engine.settings().mask, &mut shown);
        return shown;
    }
    let engine = web.engine.clone();
    let masking = tokio::task::spawn_blocking(move || {
        mask(&engine.settings().mask, &mut shown);
        shown
    });
    match masking.await {
        Ok(shown) => shown,
        // Nothing aborts it, so it panicked.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

fn mask(mask: &Mask, shown: &mut impl Shown) {
    for text in shown.texts().flatten() {
        if let std::borrow::Cow::Owned(masked) = mask.of_text(text) {
            *text = masked;
        }
    }
}
