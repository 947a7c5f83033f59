//! Where references point, and which of them come back to themselves. It must never let a schema through that would
//! make a walk over it endless or very deep.

use super::node::{Node, NodeId, Schema};
use super::reader::error;
use super::{SchemaError, Strictness};

/// Finds references that come back to themselves without an object or an array in between, and chains of them
/// that are too long.
pub(super) fn refuse_cycles(
    schema: &mut Schema,
    strictness: Strictness,
) -> Result<(), SchemaError> {
    const CHAIN_MAX: usize = 64;
    // Unvisited nodes have no height, and so have those whose visit is under way.
    let mut height: Vec<Option<usize>> = vec![None; schema.nodes.len()];
    let mut open = vec![false; schema.nodes.len()];
    for start in 0..schema.nodes.len() {
        let mut stack = vec![(start, 0)];
        while let Some((id, next)) = stack.pop() {
            if height[id].is_some() {
                continue;
            }
            open[id] = true;
            let Some(target) = targets(&schema.nodes[id]).nth(next) else {
                let below = targets(&schema.nodes[id])
                    .filter_map(|target| height[target])
                    .max();
                let own = below.map_or(0, |below| below + 1);
                if own > CHAIN_MAX {
                    let problem =
                        format!("a chain of more than {CHAIN_MAX}, expected a shorter one");
                    return Err(error(&schema.nodes[id].path, "$ref", problem));
                }
                height[id] = Some(own);
                open[id] = false;
                continue;
            };
            stack.push((id, next + 1));
            match (open[target], strictness) {
                (false, _) => stack.push((target, 0)),
                (true, Strictness::Schema) => {
                    let problem = "refers back to itself with no object or array in between";
                    return Err(error(&schema.nodes[id].path, "$ref", problem));
                }
                (true, Strictness::Shape) => {
                    cut(schema, id, target);
                    height.push(Some(0));
                    open.push(false);
                }
            }
        }
    }
    Ok(())
}

/// The nodes that hold at the same place as this one.
fn targets(node: &Node) -> impl Iterator<Item = NodeId> {
    let branches = node.unions.iter().flat_map(|union| &union.branches);
    node.all.iter().chain(branches).copied()
}

/// Takes a reference out of a node; it then says nothing.
fn cut(schema: &mut Schema, id: NodeId, target: NodeId) {
    let free = schema.nodes.len();
    let path = schema.nodes[id].path.clone();
    schema.nodes.push(Node::free(&path));
    let node = &mut schema.nodes[id];
    let branches = node.unions.iter_mut().flat_map(|union| &mut union.branches);
    for slot in node.all.iter_mut().chain(branches) {
        if *slot == target {
            *slot = free;
        }
    }
}

/// A step of a JSON pointer.
pub(super) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// A URI fragment as a JSON pointer in its one spelling; `None` if it is none.
pub(super) fn normal_pointer(fragment: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = fragment.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    let pointer = String::from_utf8(bytes).ok()?;
    let normal = |step: &str| escaped(&step.replace("~1", "/").replace("~0", "~"));
    match pointer.strip_prefix('/') {
        None => pointer.is_empty().then_some(pointer),
        Some(steps) => Some(
            steps
                .split('/')
                .map(|step| format!("/{}", normal(step)))
                .collect(),
        ),
    }
}
