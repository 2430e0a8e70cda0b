//! The life of a parcel: every receipt that speaks of it, of what it was made from and what came
//! of it.

use std::collections::BTreeSet;

use ecluse_spool::{Fate, Filed, ParcelId, Receipt};

use crate::desk::{Desk, Trouble};

impl Desk {
    /// Collects the receipts of a parcel and of its ancestors, oldest first.
    ///
    /// A parcel carries its history with it; what it has left behind is found in `receipts/`, and
    /// the parcel it was made from in the receipt that names it as an output.
    pub(crate) fn life(&self, id: &ParcelId) -> Result<Vec<Filed>, Trouble> {
        let stages = self.stages()?;
        let mut life: Vec<Filed> = Vec::new();
        let mut wanted = vec![id.clone()];
        let mut seen = BTreeSet::new();
        while let Some(wanted_id) = wanted.pop() {
            if !seen.insert(wanted_id.clone()) || seen.len() > 1000 {
                continue;
            }
            for stage in &stages {
                if let Some(filed) = self.yard.receipt(stage, &wanted_id)? {
                    life.push(filed);
                }
            }
            for parent in self.made_from(&wanted_id, &stages)? {
                for input in &parent.receipt.inputs {
                    wanted.push(input.parcel.clone());
                }
                life.push(parent);
            }
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

    /// Finds the receipts that name a parcel as an output.
    fn made_from(&self, id: &ParcelId, stages: &[String]) -> Result<Vec<Filed>, Trouble> {
        let mut parents = Vec::new();
        for stage in stages {
            self.yard.each_receipt(stage, &mut |filed| {
                if filed
                    .receipt
                    .outputs
                    .iter()
                    .any(|output| &output.parcel == id)
                {
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
        Fate::Keep => format!("part {}", receipt.part.unwrap_or(0)),
    };
    match receipt.outputs.as_slice() {
        [] => fate,
        [one] => format!("{fate}; made {} for {}", one.parcel, one.to),
        many => format!("{fate}; made {} parcels for {}", many.len(), many[0].to),
    }
}
