//! The life of a parcel: every receipt that speaks of it, of what it was made from and what came
//! of it.

use std::collections::BTreeSet;

use ecluse_spool::{Fate, Filed, ParcelId, Receipt, maker_of};

use crate::context::{DriverContext, Trouble};

/// More parcels than this are not followed back: a generation of the index is made from all there are.
const ANCESTORS: usize = 1000;

impl DriverContext {
    /// Collects the receipts of a parcel and of its ancestors, oldest first.
    ///
    /// A parcel carries its history with it; what it has left behind is found in `receipts/` under its name, and the
    /// work that made it there too, or under the name that its birth mark says. Nothing is searched for.
    pub(crate) fn life(&self, id: &ParcelId) -> Result<Vec<Filed>, Trouble> {
        let stages = self.stages()?;
        let mut life: Vec<Filed> = Vec::new();
        let mut wanted = BTreeSet::from([id.clone()]);
        let mut seen = BTreeSet::new();
        let mut marks = BTreeSet::new();
        for place in self.engine.locate(&stages, id)? {
            life.extend(self.engine.history(&place)?);
            let manifest = self.engine.manifest(&place);
            marks.extend(manifest.map(|manifest| manifest.born));
        }
        while !wanted.is_empty() && seen.len() < ANCESTORS {
            for wanted in &wanted {
                for stage in &stages {
                    life.extend(self.engine.receipt(stage, wanted)?);
                }
            }
            seen.extend(wanted.iter().cloned());
            let inputs = life.iter().flat_map(|filed| &filed.receipt.inputs);
            let inputs = inputs.filter(|input| wanted.contains(&input.parcel));
            marks.extend(inputs.map(|input| input.born.clone()));
            for mark in std::mem::take(&mut marks) {
                if let Some((stage, work)) = maker_of(&mark)
                    && stages.iter().any(|known| known == stage)
                {
                    life.extend(self.engine.receipt(stage, &work)?);
                }
            }
            let makers = life
                .iter()
                .filter(|filed| makes_any(&filed.receipt, &wanted));
            let inputs = makers.flat_map(|maker| &maker.receipt.inputs);
            wanted = inputs
                .map(|input| input.parcel.clone())
                .filter(|parcel| !seen.contains(parcel))
                .take(ANCESTORS.saturating_sub(seen.len()))
                .collect();
        }
        // A page may be a whole sheet: only what speaks of this line of descent counts.
        life.retain(|filed| speaks_of(&filed.receipt, &seen));
        life.sort_by(|a, b| a.receipt.finished.cmp(&b.receipt.finished));
        let mut told = BTreeSet::new();
        life.retain(|filed| told.insert(filed.digest.clone()));
        Ok(life)
    }
}

fn makes_any(receipt: &Receipt, ids: &BTreeSet<ParcelId>) -> bool {
    let mut outputs = receipt.outputs.iter();
    outputs.any(|output| ids.contains(&output.parcel))
}

fn speaks_of(receipt: &Receipt, ids: &BTreeSet<ParcelId>) -> bool {
    let mut inputs = receipt.inputs.iter();
    inputs.any(|input| ids.contains(&input.parcel)) || makes_any(receipt, ids)
}

/// Says in a few words what a receipt did.
pub(crate) fn deed(receipt: &Receipt) -> String {
    let fate = match &receipt.fate {
        Fate::PassOn {
            to,
            attached,
            detached,
            ..
        } => {
            let mut text = format!("passed on to {to}");
            for file in attached {
                text.push_str(&format!(
                    ", with {} ({})",
                    file.name,
                    crate::show::bytes(file.bytes)
                ));
            }
            for name in detached {
                text.push_str(&format!(", without {name}"));
            }
            text
        }
        Fate::Consume if receipt.outputs.is_empty() => "done, removed".into(),
        Fate::Consume => "consumed".into(),
    };
    match receipt.outputs.as_slice() {
        [] => fate,
        [one] => format!("{fate}; made {} for {}", one.parcel, one.to),
        many => format!("{fate}; made {} parcels for {}", many.len(), many[0].to),
    }
}
