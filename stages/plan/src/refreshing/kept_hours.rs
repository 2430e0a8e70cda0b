//! The hours of candidates, kept between two readings of the lists for a policy that asks for them when its prices are known.
//!
//! A candidate is a byte that says of which kind it is, and numbers: two of a page without a pattern of its own, a whole pattern of one that has it. The shape of
//! a site comes once, before the first page that shares it. Numbers are kept whole, so that nothing depends on where they were read.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::rc::Rc;

use ecluse_refresh::DayPattern;

use crate::hours::{HoursKnown, PageHours, SiteShape};

const NONE: u8 = 0;
const EVEN: u8 = 1;
const OF_SITE: u8 = 2;
const OWN: u8 = 3;
/// No candidate: the shape of those that follow.
const SHAPE: u8 = 4;

/// Writes the hours of candidates, one after the other.
pub(super) struct HoursWriter {
    out: BufWriter<File>,
    shape: Option<Rc<SiteShape>>,
}

impl HoursWriter {
    pub(super) fn new(file: File) -> Self {
        Self {
            out: BufWriter::with_capacity(256 << 10, file),
            shape: None,
        }
    }

    pub(super) fn write(&mut self, hours: Option<&HoursKnown>) -> io::Result<()> {
        match hours {
            None => self.out.write_all(&[NONE]),
            Some(HoursKnown::Even(rate, weight)) => self.write_numbers(EVEN, *rate, *weight),
            Some(HoursKnown::OfSite(shape, rate, weight)) => {
                let is_known = |known: &Rc<SiteShape>| Rc::ptr_eq(known, shape);
                if !self.shape.as_ref().is_some_and(is_known) {
                    self.write_pattern(SHAPE, &shape.hours)?;
                    self.shape = Some(Rc::clone(shape));
                }
                self.write_numbers(OF_SITE, *rate, *weight)
            }
            Some(HoursKnown::Own(hours)) => self.write_pattern(OWN, hours),
        }
    }

    /// Returns the file, to be read from its beginning.
    pub(super) fn finish(self) -> io::Result<File> {
        let mut file = self.out.into_inner().map_err(|error| error.into_error())?;
        file.rewind()?;
        Ok(file)
    }

    fn write_numbers(&mut self, kind: u8, rate: f64, weight: Option<f64>) -> io::Result<()> {
        self.out.write_all(&[kind])?;
        self.out.write_all(&rate.to_le_bytes())?;
        // A weight is never NaN: it was read from a list that has no such number.
        let weight = weight.unwrap_or(f64::NAN);
        self.out.write_all(&weight.to_le_bytes())
    }

    fn write_pattern(&mut self, kind: u8, hours: &PageHours) -> io::Result<()> {
        self.out.write_all(&[kind])?;
        for day in &hours.days {
            let periods = u32::try_from(day.chance.len()).map_err(io::Error::other)?;
            self.out.write_all(&day.days.to_le_bytes())?;
            self.out.write_all(&periods.to_le_bytes())?;
            for number in day.chance.iter().chain(&day.gain) {
                self.out.write_all(&number.to_le_bytes())?;
            }
        }
        Ok(())
    }
}

/// Reads them again in the same order.
pub(super) struct HoursReader {
    input: BufReader<File>,
    shape: Option<Rc<SiteShape>>,
}

impl HoursReader {
    pub(super) fn new(file: File) -> Self {
        Self {
            input: BufReader::with_capacity(256 << 10, file),
            shape: None,
        }
    }

    /// Returns the hours of the next candidate; none where nothing is known of them.
    pub(super) fn read(&mut self) -> io::Result<Option<HoursKnown>> {
        loop {
            let [kind] = self.bytes()?;
            return Ok(match kind {
                NONE => None,
                EVEN => {
                    let (rate, weight) = self.numbers()?;
                    Some(HoursKnown::Even(rate, weight))
                }
                OF_SITE => {
                    let (rate, weight) = self.numbers()?;
                    let shape = self.shape.clone().ok_or_else(damaged)?;
                    Some(HoursKnown::OfSite(shape, rate, weight))
                }
                OWN => Some(HoursKnown::Own(self.pattern()?)),
                SHAPE => {
                    let shape = SiteShape::new(self.pattern()?).ok_or_else(damaged)?;
                    self.shape = Some(Rc::new(shape));
                    continue;
                }
                _ => return Err(damaged()),
            });
        }
    }

    fn numbers(&mut self) -> io::Result<(f64, Option<f64>)> {
        let (rate, weight) = (self.number()?, self.number()?);
        Ok((rate, Some(weight).filter(|weight| !weight.is_nan())))
    }

    fn pattern(&mut self) -> io::Result<PageHours> {
        let days = [self.day()?, self.day()?];
        Ok(PageHours { days })
    }

    fn day(&mut self) -> io::Result<DayPattern> {
        let days = u32::from_le_bytes(self.bytes()?);
        let periods = u32::from_le_bytes(self.bytes()?);
        let mut numbers =
            || -> io::Result<Vec<f64>> { (0..periods).map(|_| self.number()).collect() };
        let (chance, gain) = (numbers()?, numbers()?);
        Ok(DayPattern { gain, chance, days })
    }

    fn number(&mut self) -> io::Result<f64> {
        self.bytes().map(f64::from_le_bytes)
    }

    fn bytes<const COUNT: usize>(&mut self) -> io::Result<[u8; COUNT]> {
        let mut bytes = [0; COUNT];
        self.input.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

fn damaged() -> io::Error {
    io::Error::other("the file of hours that this run wrote is damaged")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(chance: f64, days: u32) -> DayPattern {
        DayPattern {
            gain: (0..24)
                .map(|hour| chance * f64::from(hour) / 24.0)
                .collect(),
            chance: vec![chance; 24],
            days,
        }
    }

    #[test]
    fn hours_come_back_as_they_were_and_a_shape_is_written_once() {
        let own = PageHours {
            days: [day(0.1, 5), day(1.0 / 3.0, 2)],
        };
        let shape = |chance| {
            let days = [day(chance, 7), day(chance / 2.0, 3)];
            Rc::new(SiteShape::new(PageHours { days }).unwrap())
        };
        let (first, second) = (shape(0.2), shape(0.3));
        let of_site = |shape: &Rc<SiteShape>, rate| {
            Some(HoursKnown::OfSite(Rc::clone(shape), rate, Some(0.25)))
        };
        let hours = [
            None,
            Some(HoursKnown::Even(1.0 / 7.0, None)),
            of_site(&first, 0.1),
            Some(HoursKnown::Own(own)),
            of_site(&first, 0.2),
            of_site(&second, 0.3),
            Some(HoursKnown::Even(0.0, Some(0.0))),
        ];
        let mut writer = HoursWriter::new(tempfile::tempfile().unwrap());
        for hours in &hours {
            writer.write(hours.as_ref()).unwrap();
        }
        let file = writer.finish().unwrap();
        // Five candidates of 17 bytes, one of 1, and three patterns.
        assert_eq!(
            file.metadata().unwrap().len(),
            5 * 17 + 1 + 3 * (1 + 2 * (8 + 48 * 8))
        );
        let mut reader = HoursReader::new(file);
        for hours in hours {
            assert_eq!(reader.read().unwrap(), hours);
        }
        assert!(reader.read().is_err());
    }
}
