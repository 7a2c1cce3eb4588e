//! Content whose every byte follows from a name, and folders full of it.

use std::path::Path;

/// `size` bytes that only this name has.
pub fn content(name: &str, size: usize) -> Vec<u8> {
    // xorshift64*, seeded by FNV-1a of the name: no run of bytes repeats at another offset.
    let seed = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let mut x = seed | 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        bytes.extend_from_slice(&x.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// `count` names as a data set has them, in order.
pub fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("train/{:03}/{n:06}.bin", n % 10)).collect()
}

/// Writes one file of `size` bytes for each name.
pub fn fill_folder(root: &Path, names: &[String], size: usize) {
    for name in names {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content(name, size)).unwrap();
    }
}

/// Fails with a short message when bytes differ (an `assert_eq` would print them all).
#[track_caller]
pub fn assert_same(what: &str, got: &[u8], want: &[u8]) {
    assert_eq!(got.len(), want.len(), "{what}: length");
    if let Some(at) = (0..want.len()).find(|&i| got[i] != want[i]) {
        panic!("{what}: byte {at} of {} is {:#x}, not {:#x}", want.len(), got[at], want[at]);
    }
}
