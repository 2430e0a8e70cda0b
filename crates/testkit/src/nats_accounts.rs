//! Who may use a NATS server: an operator, an account and its user, as `nsc` makes them.

use data_encoding::BASE64URL_NOPAD;
use nkeys::{KeyPair, KeyPairType};
use serde_json::{Value, json};

/// When all of them were made, in Unix seconds.
const MADE: u64 = 1_700_000_000;

/// An operator with one account and one user; of each number there are others.
pub(crate) struct NatsAccounts {
    operator: KeyPair,
    account: KeyPair,
    system: KeyPair,
    user: KeyPair,
}

impl NatsAccounts {
    pub(crate) fn new(number: u8) -> Self {
        let pair = |kind: KeyPairType, which: u8| {
            KeyPair::new_from_raw(kind, [number.wrapping_mul(8) + which; 32]).expect("it is a seed")
        };
        Self {
            operator: pair(KeyPairType::Operator, 1),
            account: pair(KeyPairType::Account, 2),
            system: pair(KeyPairType::Account, 3),
            user: pair(KeyPairType::User, 4),
        }
    }

    /// Returns what stands in a server's configuration.
    pub(crate) fn configuration(&self) -> String {
        let operator = token(
            &self.operator,
            &self.operator,
            &json!({"type": "operator", "version": 2}),
        );
        let unlimited = json!({
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
            "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
        });
        let mut plain = unlimited.clone();
        for key in ["mem_storage", "disk_storage", "streams", "consumer"] {
            plain[key] = json!(0);
        }
        let account = |limits: Value| json!({"limits": limits, "default_permissions": {"pub": {}, "sub": {}}, "type": "account", "version": 2});
        let system = token(&self.operator, &self.system, &account(plain));
        let works = token(&self.operator, &self.account, &account(unlimited));
        format!(
            "operator: {operator}\nsystem_account: {0}\nresolver: MEMORY\nresolver_preload {{\n {0}: {system}\n {1}: {works}\n}}\n",
            self.system.public_key(),
            self.account.public_key(),
        )
    }

    /// Returns the file with the user's credentials.
    pub(crate) fn credentials(&self) -> String {
        let user = json!({"pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2});
        let token = token(&self.account, &self.user, &user);
        let seed = self.user.seed().expect("it has one");
        format!(
            "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
    }
}

/// Signs what one says of another.
fn token(issuer: &KeyPair, subject: &KeyPair, claims: &Value) -> String {
    let head = json!({"typ": "JWT", "alg": "ed25519-nkey"});
    let body = json!({
        "jti": subject.public_key(), "iat": MADE, "iss": issuer.public_key(), "sub": subject.public_key(), "name": "ecluse",
        "nats": claims,
    });
    let part = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let signed = format!("{}.{}", part(&head), part(&body));
    let signature = issuer.sign(signed.as_bytes()).expect("it has a secret");
    format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature))
}
