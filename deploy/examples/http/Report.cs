// Reports a round by HTTP, and waits for its ratings. It needs .NET 8 or newer, and no package: make
// a project by `dotnet new console`, and let this file be its Program.cs.
//
// RATER_URL and RATER_TOKEN name the API of `stream-rater serve`, and its token for writing.
using System.Net;
using System.Net.Http.Headers;
using System.Net.Http.Json;
using System.Text.Json;

using var client = new HttpClient
{
    BaseAddress = new Uri(Environment.GetEnvironmentVariable("RATER_URL") ?? "http://127.0.0.1:9109"),
    Timeout = TimeSpan.FromSeconds(40),
};
client.DefaultRequestHeaders.Authorization =
    new AuthenticationHeaderValue("Bearer", Environment.GetEnvironmentVariable("RATER_TOKEN"));

// Sends a round until it is stored for good. The same round_id counts once.
async Task Report(string ladder, object finished)
{
    var deadline = DateTime.UtcNow.AddSeconds(60);
    while (true)
    {
        var wait = TimeSpan.FromSeconds(1);
        try
        {
            var path = $"/v1/ladders/{Uri.EscapeDataString(ladder)}/rounds";
            using var answer = await client.PostAsJsonAsync(path, finished);
            if (answer.StatusCode == HttpStatusCode.Accepted) return;
            var again = answer.StatusCode is HttpStatusCode.ServiceUnavailable
                or HttpStatusCode.TooManyRequests;
            if (!again || DateTime.UtcNow > deadline)
                throw new InvalidOperationException(await answer.Content.ReadAsStringAsync());
            wait = answer.Headers.RetryAfter?.Delta ?? wait;
        }
        // No answer: it may be stored or not.
        catch (Exception error) when (error is HttpRequestException or TaskCanceledException)
        {
            if (DateTime.UtcNow > deadline) throw;
        }
        await Task.Delay(wait);
    }
}

var id = Guid.NewGuid().ToString();
await Report("duel", new
{
    round_id = id,
    completed_at = DateTime.UtcNow.ToString("o"),
    standings = new[] { new { player = "ann", rank = 1 }, new { player = "bob", rank = 2 } },
});
JsonElement state;
do
{
    state = await client.GetFromJsonAsync<JsonElement>($"/v1/ladders/duel/rounds/{id}?wait=30");
} while (state.GetProperty("state").GetString() == "pending");
Console.WriteLine(state.GetProperty("state").GetString());
foreach (var change in state.GetProperty("changes").EnumerateArray())
    Console.WriteLine($"{change.GetProperty("player")} {change.GetProperty("previous_rating")}"
        + $" -> {change.GetProperty("rating")}");
