//! Conditions of a policy's statements.

use std::net::IpAddr;

use serde_json::Value;

use super::{malformed, matches};
use crate::error::S3Result;

/// How a value is compared with those of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    StringEquals,
    StringEqualsIgnoreCase,
    StringLike,
    IpAddress,
    Bool,
    Numeric(Order),
    /// `true`: the request must have no value.
    Null,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Equals,
    LessThan,
    LessThanEquals,
    GreaterThan,
    GreaterThanEquals,
}

/// One comparison: key, operator, values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    /// Lower case.
    key: String,
    operator: Operator,
    /// Whether the comparison must fail.
    negated: bool,
    /// Whether it holds if the request has no such value.
    if_exists: bool,
    values: Vec<String>,
}

/// Supported condition keys, besides `s3:x-amz-…`, which are headers, and keys of tags.
const KEYS: [&str; 9] = [
    "aws:referer",
    "aws:securetransport",
    "aws:sourceip",
    "aws:useragent",
    "aws:username",
    "s3:delimiter",
    "s3:max-keys",
    "s3:prefix",
    "s3:versionid",
];

/// Keys that restrict a statement for everybody to some senders.
const NARROWING: [&str; 2] = ["aws:sourceip", "aws:username"];

impl Condition {
    /// Reads `{"StringLike": {"s3:prefix": ["a/*"]}, …}`.
    pub(super) fn parse_all(value: &Value) -> S3Result<Vec<Self>> {
        let Value::Object(operators) = value else {
            return Err(malformed("Condition must be an object"));
        };
        let mut found = Vec::new();
        for (word, keys) in operators {
            let Value::Object(keys) = keys else {
                return Err(malformed(format!("the condition {word} must be an object")));
            };
            for (key, values) in keys {
                found.push(Self::parse(word, key, values)?);
            }
        }
        Ok(found)
    }

    fn parse(word: &str, key: &str, values: &Value) -> S3Result<Self> {
        let (name, if_exists) = match word.strip_suffix("IfExists") {
            Some(name) => (name, true),
            None => (word, false),
        };
        let (operator, negated) = match name {
            "StringEquals" => (Operator::StringEquals, false),
            "StringNotEquals" => (Operator::StringEquals, true),
            "StringEqualsIgnoreCase" => (Operator::StringEqualsIgnoreCase, false),
            "StringNotEqualsIgnoreCase" => (Operator::StringEqualsIgnoreCase, true),
            "StringLike" => (Operator::StringLike, false),
            "StringNotLike" => (Operator::StringLike, true),
            "IpAddress" => (Operator::IpAddress, false),
            "NotIpAddress" => (Operator::IpAddress, true),
            "Bool" => (Operator::Bool, false),
            "NumericEquals" => (Operator::Numeric(Order::Equals), false),
            "NumericNotEquals" => (Operator::Numeric(Order::Equals), true),
            "NumericLessThan" => (Operator::Numeric(Order::LessThan), false),
            "NumericLessThanEquals" => (Operator::Numeric(Order::LessThanEquals), false),
            "NumericGreaterThan" => (Operator::Numeric(Order::GreaterThan), false),
            "NumericGreaterThanEquals" => (Operator::Numeric(Order::GreaterThanEquals), false),
            "Null" if !if_exists => (Operator::Null, false),
            _ => return Err(malformed(format!("the condition operator {word} is not served"))),
        };
        let lower = key.to_ascii_lowercase();
        let known = KEYS.contains(&lower.as_str())
            || lower.starts_with("s3:x-amz-")
            || lower.starts_with("s3:existingobjecttag/")
            || lower.starts_with("s3:requestobjecttag/");
        if !known {
            return Err(malformed(format!("the condition key {key} is not served")));
        }
        // Names of tags are case-sensitive, everything else is not.
        let key = match lower.split_once("objecttag/") {
            Some((kind, _)) => format!("{kind}objecttag/{}", &key[kind.len() + 10..]),
            None => lower,
        };
        let values = texts(values)
            .ok_or_else(|| malformed(format!("values of the condition {word} must be texts")))?;
        let numbers = |v: &String| v.parse::<f64>().is_ok();
        let ok = match operator {
            Operator::IpAddress => values.iter().all(|v| parse_net(v).is_some()),
            Operator::Numeric(_) => values.iter().all(numbers),
            Operator::Bool | Operator::Null => values.iter().all(|v| v == "true" || v == "false"),
            _ => true,
        };
        if !ok {
            return Err(malformed(format!("a value of the condition {word} is not of its kind")));
        }
        Ok(Self { key, operator, negated, if_exists, values })
    }

    /// Whether it holds for a request with these values.
    pub(super) fn holds(&self, value: &dyn Fn(&str) -> Option<String>) -> bool {
        let value = value(&self.key);
        if self.operator == Operator::Null {
            let absent = if value.is_none() { "true" } else { "false" };
            return self.values.iter().any(|v| v == absent);
        }
        match value {
            // As in AWS: a comparison without a value fails, so its negation holds.
            None => self.if_exists || self.negated,
            Some(value) => self.values.iter().any(|v| self.compare(v, &value)) != self.negated,
        }
    }

    /// Whether it restricts a statement that is for everybody.
    pub(super) fn narrows(&self) -> bool {
        let everywhere = |v: &String| matches!(v.as_str(), "*" | "0.0.0.0/0" | "::/0");
        NARROWING.contains(&self.key.as_str())
            && !self.negated
            && !self.if_exists
            && !self.values.iter().any(everywhere)
    }

    fn compare(&self, wanted: &str, value: &str) -> bool {
        match self.operator {
            Operator::StringEquals => wanted == value,
            Operator::StringEqualsIgnoreCase => wanted.eq_ignore_ascii_case(value),
            Operator::StringLike => matches(wanted, value),
            Operator::Bool => wanted.eq_ignore_ascii_case(value),
            Operator::IpAddress => match (parse_net(wanted), value.parse()) {
                (Some(net), Ok(address)) => contains(net, address),
                _ => false,
            },
            Operator::Numeric(order) => match (value.parse::<f64>(), wanted.parse::<f64>()) {
                (Ok(value), Ok(wanted)) => match order {
                    Order::Equals => value == wanted,
                    Order::LessThan => value < wanted,
                    Order::LessThanEquals => value <= wanted,
                    Order::GreaterThan => value > wanted,
                    Order::GreaterThanEquals => value >= wanted,
                },
                _ => false,
            },
            Operator::Null => false,
        }
    }
}

fn texts(value: &Value) -> Option<Vec<String>> {
    let one = |v: &Value| match v {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(v.to_string()),
        _ => None,
    };
    match value {
        Value::Array(list) => list.iter().map(one).collect(),
        value => one(value).map(|text| vec![text]),
    }
}

/// An address and its number of significant bits: `10.0.0.0/8`, or one address.
fn parse_net(text: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(most), |b| b.parse().ok())?;
    (bits <= most).then_some((address, bits))
}

fn contains((net, bits): (IpAddr, u32), address: IpAddr) -> bool {
    // On a dual-stack socket, an IPv4 client has an IPv6 address.
    match (net, address.to_canonical()) {
        (IpAddr::V4(net), IpAddr::V4(address)) => {
            (net.to_bits() ^ address.to_bits()).checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(net), IpAddr::V6(address)) => {
            (net.to_bits() ^ address.to_bits()).checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}
