//! As whom the crawler speaks: every request tells whom to write to.

use thiserror::Error;
use url::Url;

use super::AgentOrder;

/// No header of ours is longer.
const LONGEST: usize = 512;

/// Why there is no user agent to send.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AgentError {
    /// Nobody could write to us.
    #[error(
        "{user_agent:?} names nobody to write to; set agent.contact, or contact in [site], to a URL or a mail address"
    )]
    NoContact {
        /// The user agent without it.
        user_agent: String,
    },
    /// The contact is neither a URL nor a mail address.
    #[error("the contact {contact:?} is neither a URL nor a mail address")]
    BadContact {
        /// What was written.
        contact: String,
    },
    /// It cannot be sent in a header.
    #[error("{text:?} cannot be sent in a header: use up to {LONGEST} printable ASCII characters")]
    Unsendable {
        /// What was written.
        text: String,
    },
}

impl AgentOrder {
    pub(super) fn user_agent_header(&self, site_contact: &str) -> Result<String, AgentError> {
        let contact = [self.contact.trim(), site_contact.trim()];
        let contact = contact.into_iter().find(|contact| !contact.is_empty());
        if let Some(contact) = contact.filter(|contact| !is_contact(contact)) {
            return Err(AgentError::BadContact {
                contact: contact.to_owned(),
            });
        }
        let user_agent = self
            .user_agent
            .replace("{version}", env!("CARGO_PKG_VERSION"))
            .replace("{contact}", contact.unwrap_or_default());
        if !is_sendable(&user_agent) || user_agent.is_empty() {
            return Err(AgentError::Unsendable { text: user_agent });
        }
        let names_someone = user_agent
            .split(|c: char| c.is_ascii_whitespace() || "();,<>[]".contains(c))
            .map(|word| word.trim_start_matches('+'))
            .any(is_contact);
        if names_someone {
            Ok(user_agent)
        } else {
            Err(AgentError::NoContact { user_agent })
        }
    }
}

/// Tells whether a text can stand in a header.
pub(super) fn is_sendable(text: &str) -> bool {
    text.len() <= LONGEST
        && text.trim() == text
        && text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() || byte == b' ')
}

/// Tells whether a person can be reached there: a web page or a mail address.
pub(super) fn is_contact(text: &str) -> bool {
    if text.starts_with("http://") || text.starts_with("https://") {
        let host = Url::parse(text)
            .ok()
            .and_then(|url| url.host_str().map(str::to_owned));
        return host.is_some_and(|host| host.contains('.') || host.contains(':'));
    }
    let address = text.strip_prefix("mailto:").unwrap_or(text);
    let Some((person, host)) = address.rsplit_once('@') else {
        return false;
    };
    let is_atom =
        |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~.".contains(&byte);
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    !person.is_empty()
        && person.bytes().all(is_atom)
        && host.bytes().all(is_host)
        && host.split('.').count() >= 2
        && host.split('.').all(|label| !label.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contact_is_a_url_or_a_mail_address() {
        for text in [
            "https://lock.example/bot",
            "http://192.0.2.1/",
            "keeper@lock.example",
            "mailto:a.b+c@d.lock.example",
        ] {
            assert!(is_contact(text), "{text}");
        }
        for text in [
            "",
            "lock.example",
            "https://",
            "https:///bot",
            "http://localhost/",
            "@lock.example",
            "keeper@",
            "keeper@lock",
            "keeper@.example",
            "a b@lock.example",
            "keeper at lock.example",
            "ftp://lock.example/",
        ] {
            assert!(!is_contact(text), "{text}");
        }
    }

    #[test]
    fn the_user_agent_names_someone() {
        let agent = |user_agent: &str, contact: &str, site: &str| {
            let order = AgentOrder {
                user_agent: user_agent.to_owned(),
                contact: contact.to_owned(),
                ..AgentOrder::default()
            };
            order.user_agent_header(site)
        };
        let version = env!("CARGO_PKG_VERSION");
        let default = AgentOrder::default().user_agent;
        assert_eq!(
            agent(&default, "", "keeper@lock.example"),
            Ok(format!(
                "Mozilla/5.0 (compatible; ecluse/{version}; +keeper@lock.example)"
            ))
        );
        assert_eq!(
            agent(&default, "https://lock.example/bot", "keeper@lock.example"),
            Ok(format!(
                "Mozilla/5.0 (compatible; ecluse/{version}; +https://lock.example/bot)"
            ))
        );
        assert!(agent("lock_bot (+http://lock.example/; bot)", "", "").is_ok());
        assert!(matches!(
            agent(&default, "", ""),
            Err(AgentError::NoContact { .. })
        ));
        assert!(matches!(
            agent("lock_bot", "keeper@lock.example", ""),
            Err(AgentError::NoContact { .. })
        ));
        assert!(matches!(
            agent(&default, "the keeper", ""),
            Err(AgentError::BadContact { .. })
        ));
        for bad in [
            "",
            "bot\r\nX: y http://lock.example/",
            "böt http://lock.example/",
            " bot http://lock.example/",
        ] {
            assert!(
                matches!(agent(bad, "", ""), Err(AgentError::Unsendable { .. })),
                "{bad}"
            );
        }
        let long = format!("http://lock.example/{}", "a".repeat(600));
        assert!(matches!(
            agent(&long, "", ""),
            Err(AgentError::Unsendable { .. })
        ));
    }
}
