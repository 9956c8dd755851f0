// Standard containers in a pool, handles that free themselves, and what is refused.
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory_resource>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "check.h"
#include "zonal.hpp"

namespace {

// What the small requests go to.
class counting : public std::pmr::memory_resource {
public:
    std::size_t calls = 0, bytes = 0, largest = 0;

private:
    void *do_allocate(std::size_t size, std::size_t align) override {
        calls++;
        bytes += size;
        largest = std::max(largest, size);
        return std::pmr::new_delete_resource()->allocate(size, align);
    }
    void do_deallocate(void *start, std::size_t size, std::size_t align) override {
        bytes -= size;
        std::pmr::new_delete_resource()->deallocate(start, size, align);
    }
    bool do_is_equal(const memory_resource &other) const noexcept override {
        return this == &other;
    }
};

std::uint64_t used(const zonal::pool &pool) {
    const auto info = pool.info();
    return info.bytes / zonal::page_size - info.free_pages;
}

void containers() {
    zonal::pool pool(64 << 20);
    counting small;
    {
        zonal::memory_resource resource(pool, zonal::page_size, &small);
        std::pmr::vector<std::uint64_t> numbers(&resource);
        for (std::uint64_t i = 0; i < 1000000; i++) {
            numbers.push_back(i * i);
        }
        for (std::uint64_t i = 0; i < 1000000; i++) {
            CHECK(numbers[i] == i * i);
        }
        CHECK(used(pool) == (numbers.capacity() * 8 + 4095) / 4096);

        std::pmr::unordered_map<std::pmr::string, int> words(&resource);
        for (int i = 0; i < 20000; i++) {
            words.emplace("a word that is too long for the string itself " + std::to_string(i), i);
        }
        CHECK(words.at("a word that is too long for the string itself 19999") == 19999);
        CHECK(words.get_allocator().resource() == &resource);

        std::pmr::string text(&resource);
        for (int i = 0; i < 1000; i++) {
            text.append(1000, static_cast<char>('a' + i % 26));
        }
        CHECK(text.size() == 1000000 && text[999999] == 'a' + 999 % 26);

        std::pmr::deque<int> queue(100000, 7, &resource);
        CHECK(std::accumulate(queue.begin(), queue.end(), 0) == 700000);
        std::pmr::map<int, std::pmr::vector<int>> nested(&resource);
        for (int i = 0; i < 100; i++) {
            nested[i].assign(5000, i);
        }
        CHECK(nested[99][4999] == 99 && nested[99].get_allocator().resource() == &resource);

        const auto copy = numbers; // the default resource's
        CHECK(copy == numbers);
        auto moved = std::move(numbers);
        CHECK(moved.size() == 1000000 && moved[999] == 999 * 999);
        CHECK(small.calls > 20000 && small.largest < zonal::page_size);
    }
    CHECK(used(pool) == 0 && small.bytes == 0);
}

void other_resources_on_top() {
    zonal::pool pool(32 << 20);
    counting small;
    zonal::memory_resource resource(pool, zonal::page_size, &small);
    {
        std::pmr::monotonic_buffer_resource arena(1 << 16, &resource);
        std::pmr::vector<std::pmr::string> lines(&arena);
        for (int i = 0; i < 10000; i++) {
            lines.emplace_back("line " + std::to_string(i) + std::string(50, '.'));
        }
        CHECK(lines[9999].compare(0, 9, "line 9999") == 0 && used(pool) > 0);
    }
    CHECK(used(pool) == 0);
    {
        std::pmr::synchronized_pool_resource shared(&resource);
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; t++) {
            threads.emplace_back([&shared, t] {
                for (int round = 0; round < 200; round++) {
                    const auto len = static_cast<std::size_t>(round) * 37 + 1;
                    std::pmr::vector<int> numbers(len, t, &shared);
                    CHECK(numbers.back() == t);
                }
            });
        }
        for (auto &thread : threads) {
            thread.join();
        }
    }
    CHECK(used(pool) == 0 && small.bytes == 0);
}

void alignment() {
    zonal::pool pool(64 << 20);
    zonal::memory_resource resource(pool);
    for (std::size_t align = 1; align <= (std::size_t(1) << 22); align *= 2) {
        for (const std::size_t bytes : {4096u, 4097u, 8192u, 12288u, 100000u, 5000000u}) {
            void *start = resource.allocate(bytes, align);
            CHECK(reinterpret_cast<std::uintptr_t>(start) % align == 0);
            std::memset(start, 1, bytes);
            resource.deallocate(start, bytes, align);
        }
    }
    CHECK(used(pool) == 0);
    zonal::memory_resource all(pool, 0);
    void *nothing = all.allocate(0, 1);
    CHECK(used(pool) == 1);
    all.deallocate(nothing, 0, 1);
    CHECK(used(pool) == 0 && resource != all && resource == resource);
}

void refusals() {
    zonal::pool pool(16 << 20);
    zonal::memory_resource resource(pool);
    bool refused = false;
    std::pmr::vector<char> bytes(1 << 20, 'x', &resource);
    try {
        bytes.resize(64 << 20);
    } catch (const std::bad_alloc &why) {
        refused = std::string(why.what()).find("in a row") != std::string::npos;
    }
    CHECK(refused && bytes.size() == 1 << 20 && bytes[99] == 'x');
    refused = false;
    try {
        zonal::pool none(0);
    } catch (const zonal::error &why) {
        refused = why.code() == ZONAL_E_ARGUMENT;
    }
    CHECK(refused);
    try {
        refused = false;
        zonal::pages eleven(pool, 11);
    } catch (const zonal::error &why) {
        refused = std::string(why.what()).find("order 11") != std::string::npos;
    }
    CHECK(refused);
}

void handles() {
    zonal::pool pool(32 << 20);
    {
        zonal::pages one(pool), other(pool, 3, ZONAL_GFP_KERNEL | ZONAL_GFP_ZERO);
        CHECK(one.size() == 4096 && other.size() == 32768 && other.data()[32767] == std::byte(0));
        one = std::move(other);
        CHECK(one.size() == 32768);
        std::vector<zonal::pages> many;
        for (int i = 0; i < 100; i++) {
            many.emplace_back(pool);
        }
        CHECK(used(pool) == 109);
        void *raw = one.release();
        CHECK(zonal_free(pool.get(), raw, 3) == ZONAL_OK && one.size() == 0);
        zonal::range row(pool, 1234);
        zonal::range taken = std::move(row);
        CHECK(row.size() == 0 && taken.size() == 1234 * 4096);
        CHECK(taken.try_grow(6) && !taken.try_grow(1 << 20));
        taken.shrink(10);
        CHECK(used(pool) == 111);
    }
    CHECK(used(pool) == 0);
    pool.set_budget(16 << 20);
    CHECK(pool.info().budget == 16 << 20);
    CHECK(pool.text(ZONAL_TEXT_ZONEINFO).find("Node 0, zone   Normal") != std::string::npos);
    zonal::pool moved = std::move(pool);
    CHECK(pool.get() == nullptr && moved.info().nodes > 0);
}

// One that throws gives nothing up and harms nobody; the other one's pages are used.
void consumers() {
    zonal::pool pool(16 << 20);
    {
        std::vector<zonal::pages> cache, mine;
        std::mutex lock;
        zonal::consumer thrower(
            pool, "thrower", [](int) -> std::uint64_t { throw std::runtime_error("planted"); },
            [](std::uint64_t, int) -> std::uint64_t { throw 1; });
        zonal::consumer giver(
            pool, "giver",
            [&](int) {
                std::unique_lock<std::mutex> held(lock, std::try_to_lock);
                return held ? cache.size() : 0;
            },
            [&](std::uint64_t objects, int) -> std::uint64_t {
                std::unique_lock<std::mutex> held(lock, std::try_to_lock);
                std::uint64_t freed = 0;
                for (; held && freed < objects && !cache.empty(); freed++) {
                    cache.pop_back();
                }
                return held ? freed : ZONAL_SCAN_STOP;
            });
        {
            std::lock_guard<std::mutex> held(lock);
            for (int i = 0; i < 3000; i++) {
                cache.emplace_back(pool);
            }
        }
        for (int i = 0; i < 2500; i++) {
            mine.emplace_back(pool);
        }
        CHECK(pool.text(ZONAL_TEXT_CONSUMERS).find("thrower") != std::string::npos);
    }
    CHECK(used(pool) == 0);
}

} // namespace

int main() {
    containers();
    other_resources_on_top();
    alignment();
    refusals();
    handles();
    consumers();
    std::puts("ok");
}
