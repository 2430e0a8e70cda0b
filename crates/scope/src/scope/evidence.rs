//! Why a rule spoke, in values first and in words when someone asks.

use std::fmt;

use ecluse_config::Bytes;

use crate::surts::SurtMatch;

/// What a rule saw in a URL.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Evidence<'a> {
    /// The rule always speaks.
    Always,
    /// No rule spoke.
    Silence,
    /// It lies within what a SURT prefix means.
    Surt(SurtMatch<'a>),
    /// An expression matches.
    Regex(&'a str),
    /// A named crawler trap.
    Trap(&'a str),
    /// It is a seed.
    Seed,
    /// Something must be fetched first.
    Prerequisite,
    /// More of something than allowed.
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there are.
        found: u64,
        /// How many there may be.
        limit: u64,
    },
    /// It belongs to a page, by so many hops.
    Transclusion {
        /// Hops after the page, redirects not counted.
        hops: usize,
    },
    /// A part of the path repeats itself.
    Repetition(&'a str),
    /// A segment stands in the path too often.
    Occurrence(&'a str),
    /// An argument stands in the query too often.
    Argument {
        /// Its name.
        name: &'a str,
        /// How often.
        found: u64,
        /// How often it may.
        limit: u64,
    },
    /// A date outside its window.
    Date {
        /// Its year.
        year: u32,
        /// The first year it may have.
        first: u32,
        /// The last year it may have.
        last: u32,
    },
    /// A file type.
    Extension(&'a str),
    /// More bytes than allowed.
    Size {
        /// How many there are.
        found: u64,
        /// How many there may be.
        limit: u64,
    },
    /// A scheme that is not fetched.
    Scheme(&'a str),
    /// All conditions of a rule of the order's own hold.
    Conditions(usize),
}

impl fmt::Display for Evidence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names from the web may reach a terminal.
        match self {
            Evidence::Always => f.write_str("holds for every URL"),
            Evidence::Silence => f.write_str("no rule speaks of it"),
            Evidence::Surt(found) => write!(f, "lies in {found}"),
            Evidence::Regex(pattern) => write!(f, "matches {}", pattern.escape_debug()),
            Evidence::Trap(name) => write!(f, "is the trap {}", name.escape_debug()),
            Evidence::Seed => f.write_str("is a seed"),
            Evidence::Prerequisite => f.write_str("must be fetched before another URL"),
            Evidence::TooMany { what, found, limit } => {
                write!(f, "has {found} {what}, {limit} are allowed")
            }
            Evidence::Transclusion { hops: 0 } => f.write_str("is where a page redirects to"),
            Evidence::Transclusion { hops } => write!(f, "belongs to a page, {hops} hops away"),
            Evidence::Repetition(block) => {
                write!(f, "the path repeats {}", block.escape_debug())
            }
            Evidence::Occurrence(segment) => {
                write!(f, "the path has {} too often", segment.escape_debug())
            }
            Evidence::Argument { name, found, limit } => {
                let name = name.escape_debug();
                write!(f, "the query has {name} {found} times, {limit} are allowed")
            }
            Evidence::Date { year, first, last } => {
                write!(f, "has a date of {year}, outside {first} to {last}")
            }
            Evidence::Extension(extension) => {
                write!(f, "the path ends in .{}", extension.escape_debug())
            }
            Evidence::Size { found, limit } => {
                write!(f, "has {}, {} are allowed", Bytes(*found), Bytes(*limit))
            }
            Evidence::Scheme(scheme) => {
                write!(f, "the scheme {} is not fetched", scheme.escape_debug())
            }
            Evidence::Conditions(1) => f.write_str("its condition holds"),
            Evidence::Conditions(count) => write!(f, "its {count} conditions hold"),
        }
    }
}
