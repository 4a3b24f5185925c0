// The graph of a transcript that is no chain, of one utterance of a batch, in the form that the kernels read (jumps.h).
#pragma once

#include <cmath>

#include "graph.h"

namespace wildctc {

// The token arcs and word arcs of utterance n, and their weights.
struct Transcript {
    Transcript(const Batch& batch, int64_t n, int64_t offset)
        : b(batch), n(n), offset(offset), tokens(b.target_lengths[n]), states(b.graphs->states[n + 1] - b.graphs->states[n]),
          words(b.graphs->words[n + 1] - b.graphs->words[n]), labels(b.targets.row(n, offset)),
          word_arc(b.graphs->word_arcs + 3 * b.graphs->words[n]) {}

    int64_t source(int64_t a) const { return b.graphs->arcs[2 * (offset + a)]; }
    int64_t target(int64_t a) const { return b.graphs->arcs[2 * (offset + a) + 1]; }
    int64_t word_source(int64_t i) const { return word_arc[3 * i]; }
    int64_t word_target(int64_t i) const { return word_arc[3 * i + 1]; }
    int64_t word(int64_t i) const { return word_arc[3 * i + 2]; }

    double token_weight(int64_t a) const {
        return b.graphs->arc_weights[2 * (offset + a)] + (b.graphs->added.present() ? b.graphs->added.of(n, a) : 0);
    }
    double bypass_weight(int64_t a) const {
        return b.bypass.present() ? b.bypass.of(n, a) + b.graphs->arc_weights[2 * (offset + a) + 1] : -INFINITY;
    }
    double word_weight(int64_t i) const {
        if (!b.word_bypass.present()) return -INFINITY;
        return b.word_bypass.of(n, word(i)) + b.graphs->word_weights[b.graphs->words[n] + i];
    }
    double loop_weight(int64_t state) const { return b.self_loop.present() ? b.self_loop.of(n, state) : -INFINITY; }
    double final_weight(int64_t state) const { return b.graphs->final[b.graphs->states[n] + state]; }

    const Batch& b;
    const int64_t n, offset, tokens, states, words;
    const int64_t *labels, *word_arc;
};

// Throws std::invalid_argument if states, order or weights of an utterance's graph are wrong.
void check_graph(const Batch& b, int64_t n, int64_t offset, double largest);

// Numbers in groups, in one array.
class Groups {
  public:
    struct Group {
        const int32_t *first, *last;

        const int32_t* begin() const { return first; }
        const int32_t* end() const { return last; }
        int64_t size() const { return last - first; }
        bool empty() const { return first == last; }
        int32_t front() const { return *first; }
        int32_t back() const { return last[-1]; }
    };

    // The numbers [begin, end), each in the group that `group_of` tells, in their order; those of group −1 are left out.
    template <class GroupOf>
    Groups(int64_t groups, int64_t begin, int64_t end, const GroupOf& group_of)
        : starts_(static_cast<size_t>(groups + 1), 0), items_(static_cast<size_t>(end - begin)) {
        for (int64_t i = begin; i < end; ++i)
            if (group_of(i) >= 0) ++starts_[static_cast<size_t>(group_of(i))];
        for (size_t q = 1; q < starts_.size(); ++q) starts_[q] += starts_[q - 1];
        for (int64_t i = end - 1; i >= begin; --i)  // from the end of each group to its start
            if (group_of(i) >= 0) items_[static_cast<size_t>(--starts_[static_cast<size_t>(group_of(i))])] = static_cast<int32_t>(i);
    }

    Group operator[](int64_t q) const {
        return {items_.data() + starts_[static_cast<size_t>(q)], items_.data() + starts_[static_cast<size_t>(q + 1)]};
    }

  private:
    std::vector<int64_t> starts_;
    std::vector<int32_t> items_;
};

template <class R>
class TranscriptOf {
  public:
    TranscriptOf(const Batch& b, int64_t n, int64_t offset)
        : t_(b, n, offset), size_(t_.tokens + 1), padded_(padded(size_)),
          into_(t_.states, 0, size_, [&](int64_t k) { return k > 0 ? t_.target(k - 1) : 0; }),
          out_of_(t_.states, 1, size_, [&](int64_t k) { return t_.source(k - 1); }),
          words_of_(t_.states, 0, t_.words, [&](int64_t i) { return t_.word_weight(i) > -INFINITY ? t_.word_source(i) : -1; }),
          simple_(static_cast<size_t>(t_.words), 0), junction_of_(static_cast<size_t>(t_.states), -1) {
        label_positions();
        bound_growth();
        set_weights();
        find_simple_words();
        add_junctions();
        add_word_jumps();
        count_before();
        make_view();
    }

    const Graph<R>& view() const { return view_; }

    // a bound of what the graph itself takes
    int64_t bytes() const {
        const int64_t position = 6 * 8 + 5 * 4 + 5 * (sizeof(R) + sizeof(Int<R>) + sizeof(double));
        return padded_ * (position + 32) + (t_.states + t_.words) * 64;
    }

  private:
    using List = std::vector<int32_t>;
    using Weights = typename GraphOf<R>::Weights;

    static int32_t small(int64_t x) { return static_cast<int32_t>(x); }
    template <class T>
    static T& at(std::vector<T>& x, int64_t i) { return x[static_cast<size_t>(i)]; }
    template <class T>
    static const T& at(const std::vector<T>& x, int64_t i) { return x[static_cast<size_t>(i)]; }

    void label_positions() {
        label_.assign(static_cast<size_t>(padded_), t_.b.blank == 0 && t_.b.outputs > 1 ? 1 : 0);
        no_token_.assign(static_cast<size_t>(padded_), Format<R>::zero);
        state_.assign(static_cast<size_t>(padded_), 0);
        for (std::vector<int64_t>* x : {&farthest_back_, &farthest_ahead_}) {
            x->resize(static_cast<size_t>(padded_), size_ - 1);
            for (int64_t k = 0; k < size_; ++k) at(*x, k) = k;
        }
        for (int64_t k = 1; k < size_; ++k) {
            at(label_, k) = small(t_.labels[k - 1]);
            at(no_token_, k) = 0;
            at(state_, k) = small(t_.target(k - 1));
        }
    }

    // Whether the token arc of position k does what that of a chain does.
    bool plain(int64_t k) const {
        const Groups::Group sources = into_[t_.source(k - 1)];
        return sources.size() == 1 && sources.front() == k - 1 && (k == 1 || at(label_, k) != at(label_, k - 1));
    }

    void set_weights() {
        // one vector longer than the positions, as in GraphOf
        for (Weights* w : {&self_loop_, &bypass_, &enter_, &token_, &jump_bypass_}) w->clear(padded_ + kLanes);
        final_.clear(size_);
        for (int64_t k = 0; k < size_; ++k) {
            self_loop_.set(k, t_.loop_weight(at(state_, k)));
            if (t_.final_weight(at(state_, k)) > -INFINITY) {
                final_.set(static_cast<int64_t>(ends_.size()), t_.final_weight(at(state_, k)));
                ends_.push_back(small(k));
            }
            if (k == 0) continue;
            (plain(k) ? enter_ : token_).set(k, t_.token_weight(k - 1));
            (plain(k) ? bypass_ : jump_bypass_).set(k, t_.bypass_weight(k - 1));
        }
    }

    int64_t end_of(int64_t word) const { return into_[t_.word_target(word)].back(); }

    // Word arcs that are the only jump from a state with one arc into it, and the only one to the position where they end.
    void find_simple_words() {
        std::vector<int32_t> jumps_to(static_cast<size_t>(size_), 0);
        for (int64_t k = 1; k < size_; ++k) at(jumps_to, k) += plain(k) ? 0 : 1;
        for (int64_t i = 0; i < t_.words; ++i)
            if (t_.word_weight(i) > -INFINITY) ++at(jumps_to, end_of(i));
        word_in_.clear(padded_ + kLanes);
        for (int64_t k = 0; k < size_; ++k) {
            const int32_t state = at(state_, k);
            const Groups::Group words = words_of_[state];
            bool simple = words.size() == 1 && into_[state].size() == 1 && at(jumps_to, end_of(words.front())) == 1;
            for (const int32_t to : out_of_[state]) simple = simple && plain(to);
            if (!simple) continue;
            next_word_.resize(static_cast<size_t>(k + 1), static_cast<int64_t>(words_.size()));
            const int64_t i = words.front(), end = end_of(i);
            words_.push_back({small(k), small(end), t_.word(i)});
            word_in_.set(end, t_.word_weight(i));
            span(into_[state], end);
            at(simple_, i) = 1;
        }
        next_word_.resize(static_cast<size_t>(padded_ + 1), static_cast<int64_t>(words_.size()));
    }

    // Notes that arcs lead from some positions to another.
    void span(Groups::Group sources, int64_t to) {
        at(farthest_back_, to) = std::min<int64_t>(at(farthest_back_, to), sources.front());
        for (const int32_t from : sources) at(farthest_ahead_, from) = std::max(at(farthest_ahead_, from), to);
    }

    void add_junctions() {
        second_.clear(t_.states);
        for (int64_t k = 0; k < size_; ++k) {  // in the order of their last sources
            const int32_t state = at(state_, k);
            const Groups::Group sources = into_[state], words = words_of_[state];
            if (sources.back() != k) continue;
            List targets;
            for (const int32_t to : out_of_[state])
                if (!plain(to)) targets.push_back(to);
            if (targets.empty() && (words.empty() || at(simple_, words.front()))) continue;
            const int32_t number = small(static_cast<int64_t>(junctions_.size()));
            at(junction_of_, state) = number;
            junctions_.push_back({small(static_cast<int64_t>(sources_.size())), small(static_cast<int64_t>(targets_.size())), false,
                                  sources.front(), sources.back(), targets.empty() ? 0 : targets.front()});
            if (sources.size() == 2) second_.set(number, 0);
            sources_.insert(sources_.end(), sources.begin(), sources.end());
            for (const int32_t to : targets) add_target(to, sources);
            const size_t repeats = repeats_.size();
            add_repeats(sources, targets, number);
            junctions_.back().small = sources.size() <= 2 && targets.size() <= 1 && repeats_.size() == repeats;
        }
        junctions_.push_back({small(static_cast<int64_t>(sources_.size())), small(static_cast<int64_t>(targets_.size())), false, 0, 0, 0});
        std::sort(repeats_.begin(), repeats_.end(), [](const Repeat& x, const Repeat& y) { return x.position < y.position; });
    }

    void add_target(int32_t to, Groups::Group sources) {
        bool same = false;
        for (const int32_t from : sources) same = same || (from > 0 && at(label_, from) == at(label_, to));
        targets_.push_back(to);
        same_label_.push_back(same);
    }

    void add_repeats(Groups::Group sources, const List& targets, int32_t junction) {
        for (const int32_t from : sources) {
            bool same = false;
            for (const int32_t to : targets) same = same || (from > 0 && at(label_, from) == at(label_, to));
            if (same) repeats_.push_back({from, junction});
        }
    }

    void add_word_jumps() {
        std::vector<int64_t> present;
        for (int64_t i = 0; i < t_.words; ++i)
            if (t_.word_weight(i) > -INFINITY && !at(simple_, i)) present.push_back(i);
        std::stable_sort(present.begin(), present.end(), [&](int64_t i, int64_t j) { return end_of(i) < end_of(j); });
        word_.clear(static_cast<int64_t>(present.size()));
        std::vector<bool> reached(static_cast<size_t>(size_), false);
        for (const int32_t k : targets_) reached[static_cast<size_t>(k)] = true;
        for (const int64_t i : present) {
            word_.set(static_cast<int64_t>(word_jumps_.size()), t_.word_weight(i));
            word_jumps_.push_back({at(junction_of_, t_.word_source(i)), small(end_of(i)), t_.word(i)});
            adds_.push_back(reached[static_cast<size_t>(end_of(i))]);
            reached[static_cast<size_t>(end_of(i))] = true;
        }
    }

    // For each position: how far arcs lead, and how many junctions and word arcs are before it.
    void count_before() {
        for (int64_t k = 1; k < size_; ++k) span(into_[t_.source(k - 1)], k);
        for (int64_t i = 0; i < t_.words; ++i)
            if (t_.word_weight(i) > -INFINITY) span(into_[t_.word_source(i)], end_of(i));
        for (int64_t k = padded_ - 1; k > 0; --k) at(farthest_back_, k - 1) = std::min(at(farthest_back_, k - 1), at(farthest_back_, k));
        for (int64_t k = 1; k < padded_; ++k) at(farthest_ahead_, k) = std::max(at(farthest_ahead_, k), at(farthest_ahead_, k - 1));
        for (std::vector<int64_t>* x : {&complete_, &begun_, &words_before_}) x->assign(static_cast<size_t>(padded_ + 1), 0);
        for (int64_t i = 0; i + 1 < static_cast<int64_t>(junctions_.size()); ++i) {
            ++at(complete_, sources_[static_cast<size_t>(at(junctions_, i + 1).sources) - 1] + 1);
            int64_t& begun = at(begun_, sources_[static_cast<size_t>(at(junctions_, i).sources)] + 1);
            begun = std::max(begun, i + 1);
        }
        for (const WordArc& word : word_jumps_) ++at(words_before_, word.end + 1);
        for (int64_t k = 1; k <= padded_; ++k) {
            at(complete_, k) += at(complete_, k - 1);
            at(begun_, k) = std::max(at(begun_, k), at(begun_, k - 1));
            at(words_before_, k) += at(words_before_, k - 1);
        }
    }

    // What narrow.h asks: the most ★ arcs out of a state, and in how many ways the same tokens can be said.
    void bound_growth() {
        std::vector<double> same(static_cast<size_t>(t_.states), 0);
        terms_ = 10 * size_;
        List labels;
        for (int64_t q = t_.states - 1; q >= 0; --q) {
            labels.clear();
            double most = 0;
            for (const int32_t k : out_of_[q]) {
                labels.push_back(at(label_, k));
                most = std::max(most, at(same, at(state_, k)));
            }
            for (const int32_t i : words_of_[q]) most = std::max(most, at(same, t_.word_target(i)));
            std::sort(labels.begin(), labels.end());
            size_t run = 0, longest = 1;
            for (size_t i = 0; i < labels.size(); ++i) {
                run = i > 0 && labels[i] == labels[i - 1] ? run + 1 : 1;
                longest = std::max(longest, run);
            }
            at(same, q) = most + std::log(static_cast<double>(longest));
            const int64_t ways = static_cast<int64_t>(labels.size()) + words_of_[q].size();
            stars_ = std::max(stars_, 2 + static_cast<double>(ways));
            terms_ += 4 * (ways + into_[q].size());
        }
        same_ = at(same, 0);
    }

    void make_view() {
        bool tame = true;
        int64_t least = 0, least_enter = 0, least_final = 0;
        for (const Weights* w : {&self_loop_, &bypass_, &jump_bypass_, &word_, &word_in_}) w->look(tame, least);
        for (const Weights* w : {&enter_, &token_}) w->look(tame, least_enter);
        final_.look(tame, least_final);
        jumps_ = {enter_.view(), token_.view(), jump_bypass_.view(), word_.view(), final_.view(), second_.view(),
                  junctions_.data(), static_cast<int64_t>(junctions_.size()) - 1, sources_.data(), targets_.data(),
                  same_label_.data(), word_jumps_.data(), adds_.data(), complete_.data(), begun_.data(), words_before_.data(),
                  static_cast<int64_t>(word_jumps_.size()),
                  repeats_.data(), static_cast<int64_t>(repeats_.size()),
                  ends_.data(), static_cast<int64_t>(ends_.size()), state_.data()};
        view_ = {t_.tokens, true, tame, least, label_.data(), no_token_.data(), nullptr, 0,
                 self_loop_.view(), bypass_.view(), word_in_.view(), word_in_.view(),
                 words_.data(), static_cast<int64_t>(words_.size()), next_word_.data(), farthest_back_.data(), farthest_ahead_.data(),
                 terms_, stars_, same_, least_enter, &jumps_};
    }

    const Transcript t_;
    const int64_t size_, padded_;                   // positions
    const Groups into_, out_of_, words_of_;         // of each state: positions, positions, word arcs
    std::vector<uint8_t> simple_;                   // of word arcs
    List junction_of_, label_, state_, ends_, sources_, targets_;
    std::vector<Int<R>> no_token_;
    Weights self_loop_, bypass_, enter_, token_, jump_bypass_, word_, word_in_, final_, second_;
    std::vector<Junction> junctions_;
    std::vector<Repeat> repeats_;
    std::vector<WordArc> words_, word_jumps_;
    std::vector<uint8_t> same_label_, adds_;
    std::vector<int64_t> next_word_, complete_, begun_, words_before_, farthest_back_, farthest_ahead_;
    int64_t terms_ = 0;
    double stars_ = 4, same_ = 0;
    Jumps<R> jumps_;
    Graph<R> view_;
};

}  // namespace wildctc
