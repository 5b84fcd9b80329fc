//! The Merkle tree of RFC 6962: hashes, the growing edge, proofs.
//!
//! Nothing here keeps a whole tree. The edge grows leaf by leaf and gives away the roots of full tiles
//! (256 hashes, as in C2SP tlog-tiles) as they come to be; from those and the leaves' own hashes every proof
//! is made.

use std::collections::{BTreeSet, HashMap};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// SHA-256.
pub type Hash = [u8; 32];

/// Hashes in a full tile.
pub const TILE_WIDTH: u64 = 256;
/// Levels of the tree within one tile.
const TILE_HEIGHT: u32 = 8;

/// `SHA-256(0x00 || leaf)`.
#[must_use]
pub fn leaf_hash(leaf: &[u8]) -> Hash {
    let mut hash = Sha256::new();
    hash.update([0_u8]);
    hash.update(leaf);
    hash.finalize().into()
}

/// `SHA-256(0x01 || left || right)`.
#[must_use]
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    let mut hash = Sha256::new();
    hash.update([1_u8]);
    hash.update(left);
    hash.update(right);
    hash.finalize().into()
}

/// Standard base64, as C2SP writes hashes.
#[must_use]
pub fn encode(hash: &Hash) -> String {
    STANDARD.encode(hash)
}

/// None: not 32 bytes in base64.
#[must_use]
pub fn decode(text: &str) -> Option<Hash> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

/// The root of a full tile has come to be: the hash at `index` of the tiles of `level` (1 or more).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TileRoot {
    pub level: u32,
    pub index: u64,
    pub hash: Hash,
}

/// The right edge of a tree: the roots of its perfect subtrees, largest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edge {
    size: u64,
    roots: Vec<Hash>,
}

impl Edge {
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Takes the next leaf's hash; gives the roots of the tiles that it filled.
    pub fn append(&mut self, leaf: Hash) -> Vec<TileRoot> {
        let mut full = Vec::new();
        let mut hash = leaf;
        let mut height = 0_u32;
        // As in counting: each bit that is set merges with what comes.
        while self.size >> height & 1 == 1 {
            let Some(left) = self.roots.pop() else { break };
            hash = node_hash(&left, &hash);
            height += 1;
            if height.is_multiple_of(TILE_HEIGHT) {
                let index = self.size >> height;
                full.push(TileRoot { level: height / TILE_HEIGHT, index, hash });
            }
        }
        self.roots.push(hash);
        self.size += 1;
        full
    }

    /// The tree's root; that of the empty tree is the hash of nothing.
    #[must_use]
    pub fn root(&self) -> Hash {
        let mut roots = self.roots.iter().rev();
        let Some(first) = roots.next() else { return Sha256::digest(b"").into() };
        roots.fold(*first, |right, left| node_hash(left, &right))
    }

    /// One line: the roots in base64, separated by spaces.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.roots.iter().map(encode).collect::<Vec<_>>().join(" ")
    }

    /// None: the text is no edge of a tree of this size.
    #[must_use]
    pub fn from_text(size: u64, text: &str) -> Option<Self> {
        let roots: Vec<Hash> =
            text.split(' ').filter(|part| !part.is_empty()).map(decode).collect::<Option<_>>()?;
        (roots.len() == size.count_ones() as usize).then_some(Self { size, roots })
    }
}

/// A tile: its level and its place in the level.
pub type TileId = (u32, u64);

/// The tiles that some proofs need.
#[derive(Debug, Clone, Default)]
pub struct Tiles(HashMap<TileId, Vec<Hash>>);

impl Tiles {
    /// Adds a tile, full or partial.
    pub fn put(&mut self, id: TileId, hashes: Vec<Hash>) {
        self.0.insert(id, hashes);
    }

    #[must_use]
    pub fn has(&self, id: TileId) -> bool {
        self.0.contains_key(&id)
    }

    /// The root of the perfect subtree of `1 << height` leaves at this place.
    fn subtree(&self, height: u32, index: u64) -> Option<Hash> {
        let (id, from, count) = place(height, index);
        let hashes = self.0.get(&id)?;
        let from = usize::try_from(from).ok()?;
        let count = usize::try_from(count).ok()?;
        let mut row = hashes.get(from..from + count)?.to_vec();
        while row.len() > 1 {
            row = row.chunks(2).map(|pair| node_hash(&pair[0], &pair[1])).collect();
        }
        row.first().copied()
    }
}

/// In which tile a perfect subtree lies, from which hash on, and how many of them.
const fn place(height: u32, index: u64) -> (TileId, u64, u64) {
    let level = height / TILE_HEIGHT;
    let within = height % TILE_HEIGHT;
    let first = index << within;
    ((level, first / TILE_WIDTH), first % TILE_WIDTH, 1 << within)
}

/// The tiles that the inclusion proof of a leaf needs.
#[must_use]
pub fn inclusion_needs(index: u64, size: u64) -> BTreeSet<TileId> {
    let mut needs = BTreeSet::new();
    let _ = path(index, 0, size, &mut |height, at| {
        needs.insert(place(height, at).0);
        Some([0; 32])
    });
    needs
}

/// The inclusion proof of RFC 6962, section 2.1.1: from the leaf's sibling up. None where a tile is missing.
#[must_use]
pub fn inclusion(index: u64, size: u64, tiles: &Tiles) -> Option<Vec<Hash>> {
    path(index, 0, size, &mut |height, at| tiles.subtree(height, at))
}

/// The tiles that the consistency proof between two sizes needs.
#[must_use]
pub fn consistency_needs(old: u64, size: u64) -> BTreeSet<TileId> {
    let mut needs = BTreeSet::new();
    let _ = subproof(old, 0, size, true, &mut |height, at| {
        needs.insert(place(height, at).0);
        Some([0; 32])
    });
    needs
}

/// The consistency proof of RFC 6962, section 2.1.2; `old` is from 1 to `size`.
#[must_use]
pub fn consistency(old: u64, size: u64, tiles: &Tiles) -> Option<Vec<Hash>> {
    subproof(old, 0, size, true, &mut |height, at| tiles.subtree(height, at))
}

type Lookup<'a> = dyn FnMut(u32, u64) -> Option<Hash> + 'a;

/// The largest power of two below `count`, which is 2 or more.
const fn split(count: u64) -> u64 {
    1 << (63 - (count - 1).leading_zeros())
}

fn path(index: u64, from: u64, to: u64, get: &mut Lookup<'_>) -> Option<Vec<Hash>> {
    if index >= to || index < from {
        return None;
    }
    if to - from == 1 {
        return Some(Vec::new());
    }
    let middle = from + split(to - from);
    let (mut proof, sibling) = if index < middle {
        (path(index, from, middle, get)?, range(middle, to, get)?)
    } else {
        (path(index, middle, to, get)?, range(from, middle, get)?)
    };
    proof.push(sibling);
    Some(proof)
}

fn range(from: u64, to: u64, get: &mut Lookup<'_>) -> Option<Hash> {
    let count = to - from;
    if count.is_power_of_two() {
        let height = count.trailing_zeros();
        return get(height, from >> height);
    }
    let middle = from + split(count);
    let left = range(from, middle, get)?;
    let right = range(middle, to, get)?;
    Some(node_hash(&left, &right))
}

fn subproof(
    old: u64,
    from: u64,
    to: u64,
    is_whole: bool,
    get: &mut Lookup<'_>,
) -> Option<Vec<Hash>> {
    if old == 0 || old > to - from {
        return None;
    }
    if old == to - from {
        return if is_whole { Some(Vec::new()) } else { Some(vec![range(from, to, get)?]) };
    }
    let half = split(to - from);
    let (mut proof, sibling) = if old <= half {
        (subproof(old, from, from + half, is_whole, get)?, range(from + half, to, get)?)
    } else {
        (subproof(old - half, from + half, to, false, get)?, range(from, from + half, get)?)
    };
    proof.push(sibling);
    Some(proof)
}

/// The root that a leaf, its place and its proof lead to. None: the proof has the wrong length.
#[must_use]
pub fn root_from(leaf: Hash, index: u64, size: u64, proof: &[Hash]) -> Option<Hash> {
    if index >= size {
        return None;
    }
    let (mut at, mut last, mut hash) = (index, size - 1, leaf);
    for sibling in proof {
        if last == 0 {
            return None;
        }
        if at & 1 == 1 || at == last {
            hash = node_hash(sibling, &hash);
            while at & 1 == 0 && at != 0 {
                at >>= 1;
                last >>= 1;
            }
        } else {
            hash = node_hash(&hash, sibling);
        }
        at >>= 1;
        last >>= 1;
    }
    (last == 0).then_some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(count: u64) -> Vec<Hash> {
        (0..count).map(|n| leaf_hash(&n.to_be_bytes())).collect()
    }

    /// By the book: RFC 6962, section 2.1.
    fn mth(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => Sha256::digest(b"").into(),
            [one] => *one,
            many => {
                let k = usize::try_from(split(many.len() as u64)).expect("small");
                node_hash(&mth(&many[..k]), &mth(&many[k..]))
            }
        }
    }

    fn tiles(leaves: &[Hash]) -> Tiles {
        let mut tiles = Tiles::default();
        let mut row = leaves.to_vec();
        for level in 0_u32.. {
            for (index, part) in row.chunks(256).enumerate() {
                tiles.put((level, index as u64), part.to_vec());
            }
            let above: Vec<Hash> = row.chunks_exact(256).map(mth).collect();
            if above.is_empty() {
                break;
            }
            row = above;
        }
        tiles
    }

    #[test]
    fn the_edge_has_the_root_of_the_book_at_every_size() {
        let leaves = leaves(600);
        let mut edge = Edge::default();
        assert_eq!(edge.root(), mth(&[]));
        for (n, leaf) in leaves.iter().enumerate() {
            edge.append(*leaf);
            assert_eq!(edge.root(), mth(&leaves[..=n]), "{n}");
            assert_eq!(Edge::from_text(edge.size(), &edge.to_text()), Some(edge.clone()));
        }
        assert_eq!(Edge::from_text(3, &edge.to_text()), None);
    }

    #[test]
    fn full_tiles_are_given_away_once_with_their_roots() {
        let leaves = leaves(65_537);
        let mut edge = Edge::default();
        let full: Vec<TileRoot> = leaves.iter().flat_map(|leaf| edge.append(*leaf)).collect();
        let ones: Vec<&TileRoot> = full.iter().filter(|tile| tile.level == 1).collect();
        assert_eq!(ones.len(), 256);
        for (n, tile) in ones.iter().enumerate() {
            assert_eq!(tile.index, n as u64);
            assert_eq!(tile.hash, mth(&leaves[n * 256..(n + 1) * 256]));
        }
        let twos: Vec<&TileRoot> = full.iter().filter(|tile| tile.level == 2).collect();
        assert_eq!(twos.len(), 1);
        assert_eq!((twos[0].index, twos[0].hash), (0, mth(&leaves[..65_536])));
    }

    #[test]
    fn every_inclusion_proof_leads_to_the_root_and_no_other_place_does() {
        for size in [1_u64, 2, 3, 5, 8, 255, 256, 257, 600, 66_000] {
            let leaves = leaves(size);
            let (tiles, root) = (tiles(&leaves), mth(&leaves));
            let step = (size / 37).max(1);
            for index in (0..size).step_by(usize::try_from(step).expect("small")) {
                let proof = inclusion(index, size, &tiles).expect("all tiles are there");
                let leaf = leaves[usize::try_from(index).expect("small")];
                assert_eq!(root_from(leaf, index, size, &proof), Some(root), "{index} of {size}");
                if size > 1 {
                    let other = (index + 1) % size;
                    assert_ne!(root_from(leaf, other, size, &proof), Some(root));
                    assert_ne!(root_from(leaf_hash(b"x"), index, size, &proof), Some(root));
                }
                assert_eq!(root_from(leaf, index, size, &[proof, vec![root]].concat()), None);
                for id in inclusion_needs(index, size) {
                    assert!(tiles.has(id));
                }
            }
        }
    }

    #[test]
    fn a_consistency_proof_leads_from_the_old_root_to_the_new_one() {
        let leaves = leaves(700);
        let tiles = tiles(&leaves);
        for (old, size) in [(1, 2), (3, 7), (4, 7), (6, 8), (256, 257), (255, 700), (512, 700)] {
            let proof = consistency(old, size, &tiles).expect("all tiles are there");
            assert!(consistency_needs(old, size).iter().all(|id| tiles.has(*id)));
            let at = |n: u64| usize::try_from(n).expect("small");
            let (was, is) = (mth(&leaves[..at(old)]), mth(&leaves[..at(size)]));
            assert_eq!(roots_from(old, size, was, &proof), Some((was, is)), "{old} {size}");
        }
    }

    /// By the book: RFC 9162, section 2.1.4.2.
    fn roots_from(old: u64, size: u64, was: Hash, proof: &[Hash]) -> Option<(Hash, Hash)> {
        let mut proof = proof.to_vec();
        if old.is_power_of_two() {
            proof.insert(0, was);
        }
        let (mut f, mut s) = (old - 1, size - 1);
        while f & 1 == 1 {
            f >>= 1;
            s >>= 1;
        }
        let (mut a, mut b) = (*proof.first()?, *proof.first()?);
        for c in proof.iter().skip(1) {
            if f & 1 == 1 || f == s {
                a = node_hash(c, &a);
                b = node_hash(c, &b);
                while f & 1 == 0 && f != 0 {
                    f >>= 1;
                    s >>= 1;
                }
            } else {
                b = node_hash(&b, c);
            }
            f >>= 1;
            s >>= 1;
        }
        (s == 0).then_some((a, b))
    }
}
