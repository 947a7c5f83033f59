//! Tests of the tokenizer on the embedded model's vocabulary and on small ones written here.
use super::*;
use crate::Package;
use proptest::prelude::*;
use serde_json::json;

fn embedded() -> Tokenizer {
    Package::embedded()
        .expect("it is part of the program")
        .tokenizer
}

fn parse(root: &Value) -> Result<Tokenizer, PackageError> {
    Tokenizer::parse(Path::new("tokenizer.json"), root.to_string().as_bytes())
}

/// Texts that tokenisers trip over.
const TEXTS: [&str; 14] = [
    "",
    " ",
    "Hello, world!  Two spaces,\ttab,\r\nline.",
    "naïve café – “quotes” … ½",
    "中文字符，日本語、한국어",
    "مرحبا بالعالم עברית ไทย हिन्दी",
    "👩‍👩‍👧‍👦 👍🏽 🇩🇪 e\u{301}",
    "\u{a0}\u{200b}\u{feff}\u{0}\u{7f}",
    "<think>not</think> <|user|> [gMASK]<sop><arg_key>",
    "1234567890 3.14159 0x1F ١٢٣",
    "    def f(x):\n        return x**2  # ok\n\n\n",
    "<0x0A> ▁ \u{10FFF0}\u{10F000}\u{10F000}\u{10FFF1}",
    "\u{FFFD}\u{10FFFF}\u{FDD0}",
    "ALLCAPS camelCase snake_case kebab-case",
];

#[test]
fn token_bytes_joined_are_the_text() {
    let tokenizer = embedded();
    for text in TEXTS {
        let ids = tokenizer
            .encode(text, Special::None)
            .expect("any text can be encoded");
        let bytes: Vec<u8> = ids
            .iter()
            .flat_map(|id| tokenizer.decode_token(*id))
            .copied()
            .collect();
        assert_eq!(String::from_utf8_lossy(&bytes), text);
        assert_eq!(bytes, text.as_bytes());
        assert!(
            !ids.iter().any(|id| tokenizer.is_added(*id)),
            "{text:?} gave {ids:?}"
        );
    }
}

#[test]
fn trusted_text_is_parsed_as_the_library_does() {
    let tokenizer = embedded();
    let bytes = crate::embedded::file("tokenizer.json").expect("embedded");
    let reference = tokenizers::Tokenizer::from_bytes(bytes).expect("embedded");
    for text in TEXTS {
        let expected = reference
            .encode(text, false)
            .expect("encodes")
            .get_ids()
            .to_vec();
        let actual = tokenizer.encode(text, Special::Parse).expect("encodes");
        // A secret name in the text is cut, which may change tokens but not bytes.
        if text.chars().any(crate::marking::is_private) {
            assert_eq!(tokenizer.decode(&actual), text);
        } else {
            assert_eq!(actual, expected, "{text:?}");
        }
    }
}

#[test]
fn added_tokens_are_known_by_id_and_text() {
    let tokenizer = embedded();
    assert_eq!(tokenizer.token_id("<think>"), Some(7));
    assert_eq!(tokenizer.decode_token(7), b"<think>");
    assert!(tokenizer.is_added(7) && !tokenizer.is_special(7) && tokenizer.is_special(4));
    assert_eq!(tokenizer.vocab_size(), 2048);
    assert_eq!(tokenizer.decode_token(99_999), b"");
    assert!(tokenizer.prompt_prefix().is_empty());
}

proptest! {
    #[test]
    fn any_text_round_trips(text in "\\PC*|[ \\t\\n\\r<>|a-z]{0,40}") {
        // Building a tokenizer per case would take most of the time.
        static TOKENIZER: std::sync::OnceLock<Tokenizer> = std::sync::OnceLock::new();
        let tokenizer = TOKENIZER.get_or_init(embedded);
        let ids = tokenizer.encode(&text, Special::None).expect("any text can be encoded");
        prop_assert_eq!(tokenizer.decode(&ids), text);
        prop_assert!(!ids.iter().any(|id| tokenizer.is_added(*id)));
    }
}

/// A vocabulary in the manner of sentencepiece: word starts marked, unknown characters as bytes.
fn metaspace() -> Value {
    let mut vocab = serde_json::Map::new();
    for name in ["<unk>", "<s>", "</s>"] {
        vocab.insert(name.to_string(), json!(vocab.len()));
    }
    for byte in 0..=255 {
        vocab.insert(format!("<0x{byte:02X}>"), json!(vocab.len()));
    }
    for name in ["▁", "a", "b", "▁a", "▁ab", "<", "s", ">", "/"] {
        vocab.insert(name.to_string(), json!(vocab.len()));
    }
    let added = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false,
               "rstrip": false, "normalized": false, "special": true})
    };
    json!({
        "version": "1.0", "truncation": {"max_length": 4, "strategy": "LongestFirst", "stride": 0,
            "direction": "Right"}, "padding": null,
        "added_tokens": [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null,
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>",
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": true,
            "byte_fallback": true, "ignore_merges": false, "vocab": vocab,
            "merges": ["▁ a", "▁a b"]},
    })
}

#[test]
fn metaspace_and_byte_fallback_round_trip() {
    let tokenizer = parse(&metaspace()).expect("a sound file");
    assert!(tokenizer.strips_leading_space());
    assert_eq!(tokenizer.prompt_prefix(), [1]);
    for text in [
        "ab",
        "ab ab a b",
        "  a",
        "é中\n",
        "<s>ab</s>",
        "<0x41>",
        "ababababab",
    ] {
        let ids = tokenizer
            .encode(text, Special::None)
            .expect("any text can be encoded");
        assert_eq!(tokenizer.decode(&ids), format!(" {text}"), "{ids:?}");
        assert!(
            !ids.iter().any(|id| tokenizer.is_added(*id)),
            "{text} gave {ids:?}"
        );
    }
    assert_eq!(tokenizer.encode("<s>", Special::Parse), Ok(vec![1]));
}

#[test]
fn a_whole_word_in_the_vocabulary_is_no_way_around() {
    // With ignore_merges a piece that is in the vocabulary becomes that token, structural or not.
    let mut root = metaspace();
    root["model"]["ignore_merges"] = json!(true);
    root["normalizer"] = Value::Null;
    let tokenizer = parse(&root).expect("a sound file");
    let ids = tokenizer
        .encode("</s>", Special::None)
        .expect("any text can be encoded");
    assert_eq!(
        (tokenizer.decode(&ids).as_str(), ids.contains(&2)),
        ("</s>", false)
    );
}

#[test]
fn unsound_files_are_refused() {
    type Change<'a> = &'a dyn Fn(&mut Value);
    let message = |change: Change<'_>| {
        let mut root = metaspace();
        change(&mut root);
        parse(&root).expect_err("unsound").to_string()
    };
    let cases: [(Change<'_>, &str); 6] = [
        (
            &|root| root["decoder"] = json!({"type": "WordPiece"}),
            "decoder type is",
        ),
        (
            &|root| root["added_tokens"][1]["id"] = json!(77),
            "has id 77",
        ),
        (
            &|root| root["added_tokens"][1]["id"] = json!(-1),
            "expected an id",
        ),
        (
            &|root| root["added_tokens"][1]["content"] = json!("<unk>"),
            "there already",
        ),
        (
            &|root| root["model"] = json!({"type": "Mystery"}),
            "can't be built",
        ),
        (
            &|root| root["model"]["vocab"]["a"] = json!(4_294_967_295u32),
            "4294967295",
        ),
    ];
    for (change, expected) in cases {
        let message = message(change);
        assert!(message.contains(expected), "{message}");
    }
    let text = Tokenizer::parse(Path::new("tokenizer.json"), b"{").expect_err("cut off");
    assert!(matches!(text, PackageError::Json { .. }), "{text}");
    let absent = Tokenizer::absent(Path::new("x/tokenizer.json"));
    let error = absent
        .encode("a", Special::None)
        .expect_err("no tokenizer")
        .to_string();
    assert!(error.contains("x/tokenizer.json"), "{error}");
}
