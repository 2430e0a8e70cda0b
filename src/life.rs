//! The life of a parcel: every receipt that speaks of it, of what it was made from and what came
//! of it.

use std::collections::BTreeSet;

use ecluse_spool::{Fate, Filed, ParcelId, Receipt, was_given};

use crate::context::{DriverContext, Trouble};

/// More parcels than this are not followed back: a generation of the index is made from all there are.
const ANCESTORS: usize = 1000;

impl DriverContext {
    /// Collects the receipts of a parcel and of its ancestors, oldest first.
    ///
    /// A parcel carries its history with it; what it has left behind is found in `receipts/`, and
    /// the parcel it was made from in the receipt that names it as an output.
    pub(crate) fn life(&self, id: &ParcelId) -> Result<Vec<Filed>, Trouble> {
        let stages = self.stages()?;
        let mut life: Vec<Filed> = Vec::new();
        let mut wanted = BTreeSet::from([id.clone()]);
        let mut seen = BTreeSet::new();
        let mut given = BTreeSet::new();
        for place in self.tree.locate(&stages, id)? {
            life.extend(self.tree.history(&place)?);
            let manifest = self.tree.manifest(&place);
            if manifest.is_ok_and(|manifest| was_given(&manifest.born)) {
                given.insert(id.clone());
            }
        }
        // One generation after the other, so that the receipts are read once for all of one.
        while !wanted.is_empty() && seen.len() < ANCESTORS {
            for wanted in &wanted {
                for stage in &stages {
                    life.extend(self.tree.receipt(stage, wanted)?);
                }
            }
            seen.extend(wanted.iter().cloned());
            self.add_makers(&wanted, &mut given, &stages, &mut life)?;
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

    /// Adds the receipts of the work that made these parcels. Most have a maker of the same name, have
    /// it in their history, or were given: only for the others all receipts are read.
    fn add_makers(
        &self,
        wanted: &BTreeSet<ParcelId>,
        given: &mut BTreeSet<ParcelId>,
        stages: &[String],
        life: &mut Vec<Filed>,
    ) -> Result<(), Trouble> {
        let mut known = BTreeSet::new();
        for Filed { receipt, .. } in life.iter() {
            known.extend(receipt.outputs.iter().map(|output| &output.parcel));
            let inputs = receipt.inputs.iter();
            let inputs = inputs.filter(|input| was_given(&input.born));
            given.extend(inputs.map(|input| input.parcel.clone()));
        }
        let unknown = wanted
            .iter()
            .filter(|id| !known.contains(id) && !given.contains(id));
        let unknown: BTreeSet<ParcelId> = unknown.cloned().collect();
        if !unknown.is_empty() {
            life.extend(self.made_from(&unknown, stages)?);
        }
        Ok(())
    }

    /// Finds the receipts that name one of these parcels as an output.
    fn made_from(
        &self,
        ids: &BTreeSet<ParcelId>,
        stages: &[String],
    ) -> Result<Vec<Filed>, Trouble> {
        let mut parents = Vec::new();
        for stage in stages {
            self.tree.each_maker(stage, &mut |filed| {
                if makes_any(&filed.receipt, ids) {
                    parents.push(filed);
                }
            })?;
        }
        Ok(parents)
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
