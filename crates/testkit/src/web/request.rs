//! A request as it came.

/// A request as it came.
#[derive(Debug, Clone)]
pub struct WebRequest {
    /// `GET`.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// The host that is asked, without its port; lower case.
    pub host: String,
    /// All its bytes; those asked here have no body.
    pub bytes: Vec<u8>,
}

impl WebRequest {
    /// Reads the head of a request.
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let mut words = text.split([' ', '\r']);
        let mut word = || words.next().unwrap_or_default().to_owned();
        let (method, target) = (word(), word());
        let mut request = Self {
            method,
            target,
            host: String::new(),
            bytes,
        };
        let host = request.field("Host").unwrap_or_default();
        let name = host
            .rsplit_once(':')
            .map_or(host.as_str(), |(name, _)| name);
        request.host = name.to_ascii_lowercase();
        request
    }

    /// Returns the value of a header field.
    pub fn field(&self, name: &str) -> Option<String> {
        let text = String::from_utf8_lossy(&self.bytes);
        text.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found
                .eq_ignore_ascii_case(name)
                .then(|| value.trim().to_owned())
        })
    }

    /// Returns the path without the query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }
}
