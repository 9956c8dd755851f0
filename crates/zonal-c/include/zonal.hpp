// Zonal for C++17: handles that free themselves, and a std::pmr::memory_resource.
//
//   zonal::pool pool(64 << 20);
//   zonal::memory_resource resource(pool);
//   std::pmr::vector<int> numbers(&resource); // its large blocks are pages of the pool
//
// A refused allocation throws zonal::error, which is a std::bad_alloc with the reason. Nothing else
// throws. Destructors that cannot free something say so on stderr and leave it as it is.

#ifndef ZONAL_HPP
#define ZONAL_HPP

#if (defined(_MSVC_LANG) ? _MSVC_LANG : __cplusplus) < 201703L
#error "zonal.hpp needs C++17: compile with -std=c++17 or later, or use zonal.h, which needs C++98"
#endif

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <memory_resource>
#include <new>
#include <string>
#include <utility>

#include "zonal.h"

namespace zonal {

inline constexpr std::size_t page_size = 4096;

// A call that failed: its code, and its sentence.
class error : public std::bad_alloc {
public:
    error()
        : code_(zonal_last_error_code()),
          text_(std::make_shared<std::string>(zonal_last_error())) {}
    int code() const noexcept { return code_; }
    const char *what() const noexcept override { return text_->c_str(); }

private:
    int code_;
    std::shared_ptr<const std::string> text_;
};

namespace detail {

inline void check(std::int32_t code) {
    if (code != ZONAL_OK) {
        throw error();
    }
}

template <class T> T *not_null(T *pointer) {
    if (pointer == nullptr) {
        throw error();
    }
    return pointer;
}

// For destructors.
inline void tell(std::int32_t code) noexcept {
    if (code != ZONAL_OK) {
        std::fprintf(stderr, "zonal: %s\n", zonal_last_error());
    }
}

} // namespace detail

// A pool. It goes with its handle; while pages of it are in use it stays in memory instead.
class pool {
public:
    explicit pool(const zonal_options &options)
        : handle_(detail::not_null(zonal_pool_create(&options))) {}
    explicit pool(std::uint64_t bytes) : pool(of_size(bytes)) {}
    pool(pool &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    pool &operator=(pool &&other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~pool() {
        if (handle_ != nullptr) {
            detail::tell(zonal_pool_destroy(handle_));
        }
    }

    // The handle for C; null after a move.
    zonal_pool *get() const noexcept { return handle_; }

    zonal_pool_info info() const {
        zonal_pool_info figures;
        zonal_pool_info_init(&figures);
        detail::check(zonal_pool_get_info(handle_, &figures));
        return figures;
    }
    void set_budget(std::uint64_t bytes) { detail::check(zonal_set_budget(handle_, bytes)); }
    std::uint64_t drain() noexcept { return zonal_drain(handle_); }

    // zonal_text as a string.
    std::string text(zonal_text_kind kind, std::int32_t node = 0) const {
        std::string text;
        for (std::size_t room = 4096;;) {
            text.resize(room);
            const auto len = zonal_text(handle_, static_cast<std::uint32_t>(kind),
                                        ZONAL_LAYOUT_OF_POLICY, node, text.data(), room);
            if (len < 0) {
                throw error();
            }
            if (static_cast<std::size_t>(len) < room) {
                text.resize(static_cast<std::size_t>(len));
                return text;
            }
            room = static_cast<std::size_t>(len) + 4096;
        }
    }

private:
    static zonal_options of_size(std::uint64_t bytes) noexcept {
        zonal_options options;
        zonal_options_init(&options);
        options.bytes = bytes;
        return options;
    }

    zonal_pool *handle_;
};

// A block of 2^order pages. The pool outlives it.
class pages {
public:
    explicit pages(const pool &from, std::uint32_t order = 0, std::uint32_t gfp = ZONAL_GFP_KERNEL)
        : pool_(from.get()), start_(detail::not_null(zonal_alloc(pool_, order, gfp))),
          order_(order) {}
    pages(pages &&other) noexcept
        : pool_(other.pool_), start_(std::exchange(other.start_, nullptr)), order_(other.order_) {}
    pages &operator=(pages &&other) noexcept {
        std::swap(pool_, other.pool_);
        std::swap(start_, other.start_);
        std::swap(order_, other.order_);
        return *this;
    }
    ~pages() {
        if (start_ != nullptr) {
            detail::tell(zonal_free(pool_, start_, order_));
        }
    }

    std::byte *data() const noexcept { return static_cast<std::byte *>(start_); }
    std::size_t size() const noexcept { return start_ == nullptr ? 0 : page_size << order_; }
    std::uint32_t order() const noexcept { return order_; }
    // The block as a raw one, for zonal_free.
    void *release() noexcept { return std::exchange(start_, nullptr); }

private:
    zonal_pool *pool_;
    void *start_;
    std::uint32_t order_;
};

// Pages in a row, exactly as many as asked for. The pool outlives them.
class range {
public:
    range(const pool &from, std::size_t count)
        : pool_(from.get()), start_(detail::not_null(zonal_range_alloc(pool_, count))),
          pages_(count) {}
    range(const pool &from, const zonal_range_request &request)
        : pool_(from.get()), start_(detail::not_null(zonal_range_alloc_with(pool_, &request))),
          pages_(static_cast<std::size_t>(request.pages)) {}
    range(range &&other) noexcept
        : pool_(other.pool_), start_(std::exchange(other.start_, nullptr)),
          pages_(std::exchange(other.pages_, 0)) {}
    range &operator=(range &&other) noexcept {
        std::swap(pool_, other.pool_);
        std::swap(start_, other.start_);
        std::swap(pages_, other.pages_);
        return *this;
    }
    ~range() {
        if (start_ != nullptr) {
            detail::tell(zonal_range_free(pool_, start_, pages_));
        }
    }

    std::byte *data() const noexcept { return static_cast<std::byte *>(start_); }
    std::size_t size() const noexcept { return pages_ * page_size; }

    // In place, or false and as before.
    bool try_grow(std::size_t more) noexcept {
        if (zonal_range_grow(pool_, start_, pages_, more) != ZONAL_OK) {
            return false;
        }
        pages_ += more;
        return true;
    }
    void shrink(std::size_t keep) {
        detail::check(zonal_range_shrink(pool_, start_, pages_, keep));
        pages_ = keep;
    }

private:
    zonal_pool *pool_;
    void *start_;
    std::size_t pages_;
};

// A cache that gives objects up when the pool runs low, until it is destroyed. `count` says how
// many objects could go; `scan` looks at as many as it is asked to, and returns how many went.
// Neither waits for a lock that its own code holds while it allocates. One that throws gives
// nothing up.
class consumer {
public:
    using counter = std::function<std::uint64_t(int node)>;
    using scanner = std::function<std::uint64_t(std::uint64_t objects, int node)>;

    consumer(const pool &from, const char *name, counter count, scanner scan)
        : calls_(std::make_unique<calls>(calls{std::move(count), std::move(scan)})) {
        zonal_shrinker shrinker;
        zonal_shrinker_init(&shrinker);
        shrinker.name = name;
        shrinker.count = &consumer::on_count;
        shrinker.scan = &consumer::on_scan;
        shrinker.data = calls_.get();
        handle_ = detail::not_null(zonal_shrinker_register(from.get(), &shrinker));
    }
    consumer(const consumer &) = delete;
    consumer &operator=(const consumer &) = delete;
    ~consumer() {
        if (const auto code = zonal_consumer_remove(handle_); code != ZONAL_OK) {
            detail::tell(code);
            calls_.release(); // may still be called
        }
    }

private:
    struct calls {
        counter count;
        scanner scan;
    };

    static std::uint64_t on_count(void *data, std::int32_t node) noexcept {
        try {
            return static_cast<calls *>(data)->count(node);
        } catch (...) {
            return 0;
        }
    }
    static std::uint64_t on_scan(void *data, std::uint64_t objects, std::int32_t node,
                                 std::uint32_t, std::uint64_t *) noexcept {
        try {
            return static_cast<calls *>(data)->scan(objects, node);
        } catch (...) {
            return ZONAL_SCAN_STOP;
        }
    }

    std::unique_ptr<calls> calls_;
    zonal_consumer *handle_;
};

// Memory for containers: requests of at least `smallest` bytes get pages of the pool in a row,
// rounded up to whole pages; smaller ones, and those aligned above 4 MiB, go to `upstream`. The
// pool and `upstream` outlive it. Any thread may use it if any may use `upstream`.
class memory_resource : public std::pmr::memory_resource {
public:
    explicit memory_resource(const pool &from, std::size_t smallest = page_size,
                             std::pmr::memory_resource *upstream = std::pmr::get_default_resource())
        : pool_(from.get()), smallest_(smallest), upstream_(upstream) {}

    std::pmr::memory_resource *upstream() const noexcept { return upstream_; }

private:
    bool is_upstream(std::size_t bytes, std::size_t align) const noexcept {
        return bytes < smallest_ || align > (page_size << 10);
    }
    static std::size_t pages_of(std::size_t bytes) noexcept {
        return bytes == 0 ? 1 : (bytes - 1) / page_size + 1;
    }
    // The order that is exactly that large and as aligned, or ZONAL_ORDERS.
    static std::uint32_t order_of(std::size_t count, std::size_t align) noexcept {
        const bool is_block = (count & (count - 1)) == 0 && align <= count * page_size;
        return is_block ? zonal_order_for(count * page_size) : ZONAL_ORDERS;
    }

    void *do_allocate(std::size_t bytes, std::size_t align) override {
        if (is_upstream(bytes, align)) {
            return upstream_->allocate(bytes, align);
        }
        const std::size_t count = pages_of(bytes);
        const std::uint32_t order = order_of(count, align);
        if (order == 0) {
            return detail::not_null(zonal_alloc_page(pool_));
        }
        if (order < ZONAL_ORDERS) {
            return detail::not_null(zonal_alloc(pool_, order, ZONAL_GFP_KERNEL));
        }
        zonal_range_request request;
        zonal_range_request_init(&request, count);
        request.align = align > page_size ? align / page_size : 1;
        return detail::not_null(zonal_range_alloc_with(pool_, &request));
    }

    void do_deallocate(void *start, std::size_t bytes, std::size_t align) override {
        if (is_upstream(bytes, align)) {
            upstream_->deallocate(start, bytes, align);
            return;
        }
        const std::size_t count = pages_of(bytes);
        const std::uint32_t order = order_of(count, align);
        if (order == 0) {
            detail::tell(zonal_free_page(pool_, start));
        } else if (order < ZONAL_ORDERS) {
            detail::tell(zonal_free(pool_, start, order));
        } else {
            detail::tell(zonal_range_free(pool_, start, count));
        }
    }

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
        return this == &other;
    }

    zonal_pool *pool_;
    std::size_t smallest_;
    std::pmr::memory_resource *upstream_;
};

} // namespace zonal

#endif
