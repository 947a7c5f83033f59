//! `POST /v1/messages`: the streamed response. `message_start`, blocks one after another, then
//! `message_delta` and `message_stop`; after an error, open blocks are stopped and `error` is last.

use crate::answer::{ChoiceReader, End, Outcome, Piece};
use crate::anthropic::response::{BlockEvent, Blocks, MessageHead, SIGNATURE, stop, usage};
use crate::generation::Update;
use crate::http::error::Api;
use crate::job::dropped_call_warning;
use crate::sse::{Encoder, write_event};
use lockstep_step::planted;
use serde_json::{Value, json};

/// Writes a message stream.
pub(crate) struct MessageStream {
    head: MessageHead,
    reader: ChoiceReader,
    blocks: Blocks,
    num_blocks: u32,
}

impl MessageStream {
    pub(crate) fn new(head: MessageHead) -> MessageStream {
        MessageStream {
            head,
            // Planted: smg-project/smg#1063.
            reader: ChoiceReader::new(!planted!(OneEndpointUntrimmed)),
            blocks: Blocks::new(),
            num_blocks: 0,
        }
    }

    fn write_block(&mut self, event: BlockEvent, was_thinking: bool, out: &mut Vec<u8>) {
        let idx = self.num_blocks.saturating_sub(1);
        let delta = match event {
            BlockEvent::StartThinking => {
                return self.start(
                    json!({"type": "thinking", "thinking": "", "signature": ""}),
                    out,
                );
            }
            BlockEvent::StartText => return self.start(json!({"type": "text", "text": ""}), out),
            BlockEvent::StartCall { index, name } => {
                let id = self.head.call_id(index);
                let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                return self.start(block, out);
            }
            BlockEvent::Thinking(text) => json!({"type": "thinking_delta", "thinking": text}),
            BlockEvent::Text(text) => json!({"type": "text_delta", "text": text}),
            BlockEvent::Json(text) => json!({"type": "input_json_delta", "partial_json": text}),
            BlockEvent::Stop => {
                if was_thinking {
                    let delta = json!({"type": "signature_delta", "signature": SIGNATURE});
                    write_delta(idx, delta, out);
                }
                let data = json!({"type": "content_block_stop", "index": idx});
                return write_event("content_block_stop", &data, out);
            }
        };
        write_delta(idx, delta, out);
    }

    fn start(&mut self, block: Value, out: &mut Vec<u8>) {
        let data = json!({
            "type": "content_block_start",
            "index": self.num_blocks,
            "content_block": block,
        });
        self.num_blocks += 1;
        write_event("content_block_start", &data, out);
    }

    fn finish(&mut self, outcome: &Outcome, out: &mut Vec<u8>) {
        if let End::Failed(failure) = &outcome.end {
            let body = failure.error().body(Api::Anthropic, &self.head.request_id);
            return write_event("error", &body, out);
        }
        let (reason, sequence) = stop(&outcome.end);
        let mut data = json!({
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": sequence},
            "usage": usage(&outcome.usage),
        });
        // Planted: vllm-project/vllm#53269, in the other API.
        if planted!(CallsHideLengthInMessages) && outcome.dropped_call {
            data["delta"]["stop_reason"] = json!("tool_use");
        }
        if outcome.dropped_call {
            data["warnings"] = json!([dropped_call_warning(0)]);
        }
        write_event("message_delta", &data, out);
        write_event("message_stop", &json!({"type": "message_stop"}), out);
    }
}

fn write_delta(idx: u32, delta: Value, out: &mut Vec<u8>) {
    let data = json!({"type": "content_block_delta", "index": idx, "delta": delta});
    write_event("content_block_delta", &data, out);
}

impl Encoder for MessageStream {
    fn begin(&mut self, out: &mut Vec<u8>) {
        let mut message = self.head.message(Vec::new());
        message.insert(
            "usage".to_string(),
            json!({"input_tokens": self.head.prompt_tokens, "output_tokens": 0}),
        );
        if !self.head.warnings.is_empty() {
            message.insert("warnings".to_string(), json!(self.head.warnings));
        }
        let data = json!({"type": "message_start", "message": message});
        write_event("message_start", &data, out);
    }

    fn update(&mut self, _choice: usize, update: Update, out: &mut Vec<u8>) {
        let mut pieces = Vec::new();
        self.reader.read(update, &mut pieces);
        for piece in pieces {
            let outcome = match &piece {
                Piece::End(outcome) => Some(outcome.clone()),
                _ => None,
            };
            let was_thinking = self.blocks.in_thinking();
            let mut events = Vec::new();
            self.blocks.piece(piece, |event| events.push(event));
            for event in events {
                self.write_block(event, was_thinking, out);
            }
            if let Some(outcome) = outcome {
                self.finish(&outcome, out);
            }
        }
    }

    fn end(&mut self, _out: &mut Vec<u8>) {}
}
