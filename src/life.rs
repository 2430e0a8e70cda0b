//! The life of a parcel: every receipt that speaks of it, of what it was made from and what came
//! of it.

use std::collections::BTreeSet;

use ecluse_spool::{Fate, Filed, ParcelId, Receipt};

use crate::desk::{Desk, Trouble};

/// More parcels than this are not followed back: a generation of the index is made from all there are.
const ANCESTORS: usize = 1000;

impl Desk {
    /// Collects the receipts of a parcel and of its ancestors, oldest first.
    ///
    /// A parcel carries its history with it; what it has left behind is found in `receipts/`, and
    /// the parcel it was made from in the receipt that names it as an output.
    pub(crate) fn life(&self, id: &ParcelId) -> Result<Vec<Filed>, Trouble> {
        let stages = self.stages()?;
        let mut life: Vec<Filed> = Vec::new();
        let mut wanted = BTreeSet::from([id.clone()]);
        let mut seen = BTreeSet::new();
        // One generation after the other, so that the receipts are read once for all of one.
        while !wanted.is_empty() && seen.len() < ANCESTORS {
            for wanted in &wanted {
                for stage in &stages {
                    life.extend(self.yard.receipt(stage, wanted)?);
                }
            }
            seen.extend(wanted.iter().cloned());
            let parents = self.made_from(&wanted, &stages)?;
            let inputs = parents.iter().flat_map(|parent| &parent.receipt.inputs);
            wanted = inputs
                .map(|input| input.parcel.clone())
                .filter(|parcel| !seen.contains(parcel))
                .take(ANCESTORS.saturating_sub(seen.len()))
                .collect();
            life.extend(parents);
        }
        for place in self.yard.locate(&stages, id)? {
            for filed in self.yard.history(&place)? {
                // A page may be a whole sheet: only what speaks of this line of descent counts.
                if speaks_of(&filed.receipt, &seen) {
                    life.push(filed);
                }
            }
        }
        life.sort_by(|a, b| a.receipt.finished.cmp(&b.receipt.finished));
        let mut told = BTreeSet::new();
        life.retain(|filed| told.insert(filed.digest.clone()));
        Ok(life)
    }

    /// Finds the receipts that name one of these parcels as an output.
    fn made_from(
        &self,
        ids: &BTreeSet<ParcelId>,
        stages: &[String],
    ) -> Result<Vec<Filed>, Trouble> {
        let mut parents = Vec::new();
        for stage in stages {
            self.yard.each_maker(stage, &mut |filed| {
                let mut outputs = filed.receipt.outputs.iter();
                if outputs.any(|output| ids.contains(&output.parcel)) {
                    parents.push(filed);
                }
            })?;
        }
        Ok(parents)
    }
}

fn speaks_of(receipt: &Receipt, ids: &BTreeSet<ParcelId>) -> bool {
    receipt
        .inputs
        .iter()
        .any(|input| ids.contains(&input.parcel))
        || receipt
            .outputs
            .iter()
            .any(|output| ids.contains(&output.parcel))
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
